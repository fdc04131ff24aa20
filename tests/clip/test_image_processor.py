"""What model folders say of images: followed as transformers' own processors do, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor

from glit.errors import WeightsError
from glit.models.clip import crops
from glit.models.clip.crops import cut_crops
from glit.models.clip.image_processor import (
    CLIP_MEAN,
    Preprocessing,
    processor_config,
    read_preprocessing,
)
from glit.models.clip.preprocess import fit_image

THIRD = {
    "image_processor_type": "SiglipImageProcessor",
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.4, 0.5, 0.6],
}
SIDE = 48
CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": SIDE},
    "crop_size": {"height": SIDE, "width": SIDE},
}
SIGLIP = {
    "image_processor_type": "SiglipImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
}


def written(folder: Path, values: dict) -> Path:
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder


def test_preprocessing_of_a_folder(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no preprocessor_config.json says how"):
        assert read_preprocessing(tmp_path) == Preprocessing()
    wanted = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), fit="resize")
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": THIRD}))
    assert read_preprocessing(tmp_path) == wanted
    (tmp_path / "processor_config.json").unlink()
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"do_center_crop": True}))
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')  # tells whose processor it is
    assert read_preprocessing(tmp_path) == Preprocessing(mean=CLIP_MEAN, fit="centre-crop")


@pytest.mark.parametrize(
    "values",
    [
        CLIP,
        {**CLIP, "size": {"shortest_edge": SIDE * 8 // 7}},
        {**CLIP, "size": SIDE, "crop_size": SIDE},
        {**CLIP, "size": {"height": SIDE, "width": SIDE}},
        {**CLIP, "do_normalize": False},
        {**CLIP, "rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
        {**CLIP, "do_rescale": False, "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0] * 3},
        {**CLIP, "resample": 2},
        {**SIGLIP, "image_mean": [0.1, 0.2, 0.3]},
        {**SIGLIP, "resample": 2},
        {**SIGLIP, "do_normalize": False},
    ],
)
@pytest.mark.parametrize("size", [(90, 60), (60, 90), (200, 70), (40, 30)])
def test_images_as_transformers_prepares_them(tmp_path, values, size) -> None:
    """Within two grey levels: torch resizes here, Pillow there."""
    folder = written(tmp_path, values)
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (6, 9, 3), dtype=np.uint8)
    image = np.array(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC))
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    wanted = processor(images=[Image.fromarray(image)], return_tensors="pt")["pixel_values"][0]
    found = read_preprocessing(folder, side=SIDE)
    pixels = fit_image(image, side=SIDE, fit=found.fit, shortest=found.shortest, mode=found.mode)
    mean, std = (torch.tensor(each)[:, None, None] for each in (found.mean, found.std))
    level = 1.01 / (255 * min(found.std))
    torch.testing.assert_close((pixels / 255 - mean) / std, wanted, rtol=0, atol=2 * level)
    whole = np.array([[0.0, 0.0, image.shape[1], image.shape[0]]])
    (crop,) = cut_crops(
        image, whole, read_preprocessing(folder, side=SIDE), side=SIDE, device="cpu"
    )
    torch.testing.assert_close(crop, wanted, rtol=0, atol=2 * level)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_processor_type": "BitImageProcessor"}, "'BitImageProcessor': wanted CLIP's"),
        ({"crop_pct": 0.875}, "crop_pct = 0.875: this key is not followed"),
        ({"do_pad": True}, "do_pad = True: this key is not followed"),
        ({"do_resize": False}, "do_resize = false"),
        ({"resample": 0}, "resample = 0: wanted 2 .bilinear. or 3 .bicubic."),
        ({"size": {"shortest_edge": SIDE - 8}}, "smaller than crop_size"),
        ({"size": {"height": 64, "width": 64}}, f"squeezes before it crops to {SIDE}"),
        ({"size": {"longest_edge": SIDE}}, "size = {'longest_edge': 48}: wanted the side"),
        ({"crop_size": {"height": SIDE, "width": 32}}, "crop_size = .*wanted the side of a square"),
        ({"size": SIDE, "do_center_crop": False}, "images would not be square"),
        ({"image_mean": [0.5, 0.5]}, "image_mean = .0.5, 0.5.: wanted three numbers"),
        ({"image_mean": [0.5, 0.5, float("nan")]}, "wanted three numbers"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std = .*: wanted numbers above 0"),
        ({"rescale_factor": -1}, "rescale_factor = -1: wanted a number above 0"),
        ({"crop_size": 64, "size": 64}, f"images of 64 pixels, but the model takes {SIDE}"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, change, message) -> None:
    with pytest.raises(WeightsError, match=message):
        read_preprocessing(written(tmp_path, {**CLIP, **change}), side=SIDE)


def test_keys_that_transformers_itself_drops_have_no_effect(tmp_path) -> None:
    plain = read_preprocessing(written(tmp_path, CLIP), side=SIDE)
    keys = {**CLIP, "_valid_processor_keys": ["images", "do_resize"]}
    assert read_preprocessing(written(tmp_path, keys), side=SIDE) == plain


@pytest.mark.parametrize(
    ("fit", "box", "shape"),
    [("resize", (3, 600), (1, 3, 600, 600)), ("resize", (300, 300), (1,)),
     ("centre-crop", (600, 600), (1, 3, 600, 600)), ("centre-crop", (300, 600), (1,))],
)  # fmt: skip
def test_what_a_gpu_would_shrink_too_far_is_shrunk_on_the_cpu(monkeypatch, fit, box, shape) -> None:
    """By more than 40 times: squeezed along one side, or in the middle square."""
    sources = []
    monkeypatch.setattr(crops, "upload_image", lambda *_: torch.ones(()))
    monkeypatch.setattr(crops, "whole_pixel_boxes", lambda *_: [(0, 0, *box)])
    monkeypatch.setattr(
        crops, "_resized", lambda source, *_: sources.append(source) or torch.zeros(1, 3, 12, 12)
    )
    image = np.zeros((600, 600, 3), np.uint8)
    cut_crops(image, np.zeros((1, 4)), Preprocessing(fit=fit), side=12, device="cpu")
    assert [tuple(source.shape) for source in sources] == [shape]


@pytest.mark.parametrize("text", ["[]", "{", '"x"', "[" * 100_000])
def test_a_damaged_file_is_one_line(tmp_path, text) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(WeightsError, match="preprocessor_config.json cannot be read"):
        read_preprocessing(tmp_path)


def test_a_folder_that_is_written_says_the_same(tmp_path, tiny_clip) -> None:
    from glit.models.clip.kinds import open_model

    model = open_model(tiny_clip)
    for found in (
        Preprocessing(fit="resize", mode="bilinear"),
        Preprocessing(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), shortest=40),
    ):
        assert read_preprocessing(written(tmp_path, processor_config(model, found))) == found
