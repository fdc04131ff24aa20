"""What other packages answer to the same input: open_clip, clip_benchmark, torchmetrics, Pillow's
transforms by torchvision, libvips. Nothing of theirs is copied here; they are asked."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import pyvips
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn.functional import normalize

from glit.evaluation.label_maps import IGNORED
from glit.evaluation.ranking import first_hit_rank, recall_at
from glit.evaluation.relevance import by_text
from glit.evaluation.tasks.segment import confusion, means
from glit.images import decode
from glit.models.clip.kinds import open_model
from glit.models.clip.preprocess import fit_image
from glit.models.importers.model import import_model
from glit.models.importers.open_clip import preprocessing
from glit.training.losses import contrastive, sigmoid_loss

OPEN_CLIP = Path(__file__).parent / "files" / "open-clip"

ALL = torch.ones(12, dtype=torch.bool)


def drawn(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(count, 24, generator=generator), dim=-1)


def gradients(loss, *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    value = loss(*leaves)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def test_the_contrastive_loss_and_its_gradients_are_open_clips() -> None:
    from open_clip.loss import ClipLoss

    image, text, scale = drawn(12, 0), drawn(12, 1), torch.tensor(17.3)
    found = gradients(lambda *each: contrastive(*each, ALL), image, text, scale)
    wanted = gradients(ClipLoss(), image, text, scale)
    torch.testing.assert_close(found, wanted)


def test_the_sigmoid_loss_and_its_gradients_are_open_clips() -> None:
    from open_clip.loss import SigLipLoss

    inputs = drawn(12, 0), drawn(12, 1), torch.tensor(17.3), torch.tensor(-9.1)
    found = gradients(lambda *each: sigmoid_loss(*each, ALL), *inputs)
    wanted = gradients(SigLipLoss(), *inputs)
    torch.testing.assert_close(found, wanted)


@torch.no_grad()
def test_a_zero_shot_classifier_is_open_clips(tmp_path, tiny_clip) -> None:
    """The same folder, opened by both; templates averaged as open_clip does."""
    import open_clip

    config = json.loads((OPEN_CLIP / "open_clip_config.json").read_text())["model_cfg"]
    theirs = open_clip.model.CLIP(**config).eval()
    theirs.load_state_dict(load_file(OPEN_CLIP / "open_clip_model.safetensors"), strict=False)
    import_model(OPEN_CLIP, tmp_path / "clip", like=str(tiny_clip))
    ours = open_model(tmp_path / "clip").eval()
    end = config["text_cfg"]["vocab_size"] - 1

    def ids(texts: list[str]) -> torch.Tensor:
        found = torch.zeros(len(texts), 77, dtype=torch.long)
        for row, text in zip(found, texts, strict=True):
            words = [end - 1, *(1 + sum(map(ord, word)) % 600 for word in text.split()), end]
            row[: len(words)] = torch.tensor(words)
        return found

    names, templates = ["cat", "dog", "sea lion"], ["a photo of a {}.", "many {} here"]
    wanted = open_clip.build_zero_shot_classifier(
        theirs, ids, names, [lambda name, t=each: t.format(name) for each in templates], 10
    )
    rows = [ids([each.format(name) for each in templates]) for name in names]
    embedded = [normalize(ours.get_text_features(input_ids=r).pooler_output, dim=-1) for r in rows]
    found = torch.stack([normalize(each.mean(dim=0), dim=-1) for each in embedded])
    torch.testing.assert_close(found.T, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_images_are_prepared_as_open_clip_prepares_them(tmp_path, mode) -> None:
    import open_clip

    values = json.loads((OPEN_CLIP / "open_clip_config.json").read_text())
    values["preprocess_cfg"] = {
        "mean": [0.5, 0.4, 0.3],
        "std": [0.2, 0.3, 0.4],
        "resize_mode": mode,
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(values))
    found = preprocessing(tmp_path)
    small = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    image = np.array(Image.fromarray(small).resize((90, 70), Image.Resampling.BICUBIC))
    transform = open_clip.image_transform(
        32, is_train=False, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), resize_mode=mode,
        interpolation="bicubic",
    )  # fmt: skip
    wanted = transform(Image.fromarray(image))
    mean, std = (torch.tensor(each)[:, None, None] for each in (found.mean, found.std))
    pixels = (fit_image(image, side=32, fit=found.fit) / 255 - mean) / std
    torch.testing.assert_close(pixels, wanted, rtol=0, atol=2.01 / (255 * 0.2))


class Given:
    """A model whose inputs are the embeddings."""

    def encode_image(self, found):
        return found

    encode_text = encode_image


def test_recall_with_several_captions_an_image_is_clip_benchmarks() -> None:
    from clip_benchmark.metrics import zeroshot_retrieval

    num_images, per_image = 30, 3
    image = drawn(num_images, 2)
    text = normalize(image.repeat_interleave(per_image, 0) + 2.5 * drawn(90, 3), dim=-1)
    words = [str(i) for i in range(len(text))]
    batches = [
        (image[k : k + 10], [words[per_image * i : per_image * (i + 1)] for i in range(k, k + 10)])
        for k in range(0, num_images, 10)
    ]
    ks = [1, 5, 10]
    wanted = zeroshot_retrieval.evaluate(
        Given(), batches, lambda some: torch.stack([text[int(word)] for word in some]), "cpu",
        amp=False, recall_k_list=ks,
    )  # fmt: skip
    owner = [i // per_image for i in range(len(text))]
    scores = text @ image.T
    t2i, i2t = by_text(owner, words, num_images)
    for name, table, relevance in (("image", scores, t2i), ("text", scores.T, i2t)):
        rank = first_hit_rank(
            table.__getitem__, num_gallery=table.shape[1], relevance=relevance, chunk=7
        )
        found = recall_at(rank, ks)
        for k in ks:
            assert found[k] == pytest.approx(wanted[f"{name}_retrieval_recall@{k}"]), (name, k)
    assert 0.2 < wanted["image_retrieval_recall@1"] < 0.9


def test_mean_iou_is_torchmetrics() -> None:
    from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

    rng = np.random.default_rng(5)
    truth, found = rng.integers(0, 6, (2, 40, 50))
    truth[rng.random(truth.shape) < 0.2] = IGNORED
    iou = MulticlassJaccardIndex(6, average="macro", ignore_index=IGNORED)
    accuracy = MulticlassAccuracy(6, average="micro", ignore_index=IGNORED)
    inputs = torch.from_numpy(found), torch.from_numpy(truth)
    ours = means(confusion(truth, found, 6))
    assert ours["miou"] == pytest.approx(iou(*inputs).item(), abs=1e-6)
    assert ours["pixel_accuracy"] == pytest.approx(accuracy(*inputs).item(), abs=1e-6)


def photograph() -> np.ndarray:
    """Smooth colours and edges, 57 x 43 pixels."""
    coarse = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)
    image = Image.fromarray(coarse).resize((57, 43), Image.Resampling.BICUBIC)
    image.paste((20, 180, 60), (10, 8, 30, 25))
    return np.asarray(image)


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


DEEP = np.arange(57 * 43, dtype=np.uint16).reshape(43, 57) * 26
PICTURES = {
    "jpeg": (photograph(), {"format": "JPEG", "subsampling": 0}, 1),
    "jpeg, half the colours": (photograph(), {"format": "JPEG", "quality": 85}, 1),
    "jpeg, progressive and turned": (
        photograph(), {"format": "JPEG", "progressive": True, "exif": turned()}, 1),
    "png": (photograph(), {"format": "PNG"}, 0),
    "png, 16-bit grey": (DEEP, {"format": "PNG"}, 1),
    "tiff, deflate": (photograph(), {"format": "TIFF", "compression": "tiff_adobe_deflate"}, 0),
    "tiff, lzw": (photograph(), {"format": "TIFF", "compression": "tiff_lzw"}, 0),
    "webp": (photograph(), {"format": "WEBP", "lossless": True}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_those_of_libvips(name):
    """Upright, eight bits, sRGB; the last number is the most that a value may differ."""
    pixels, options, most = PICTURES[name]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, **options)
    theirs = pyvips.Image.new_from_buffer(buffer.getvalue(), "").autorot().colourspace("srgb")
    ours = decode(buffer.getvalue())
    assert ours.shape == (theirs.height, theirs.width, 3)
    assert np.abs(ours.astype(int) - theirs.numpy().astype(int)).max() <= most
