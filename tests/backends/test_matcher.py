"""The CLIP matcher: crops equal the library's preprocessing, embeddings do not know their batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pretend_cuda import NotOnCuda, pretend_cuda

from glit.images import decode
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.clip import crops
from glit.models.clip.crops import cut_crops, whole_pixel_boxes
from glit.models.clip.image_processor import Preprocessing
from glit.models.clip.random_clip import VIT_B_16, write_random_clip
from glit.models.weights import resolve
from glit.stages.score import ScoreConfig

SENTENCE = (
    "In the background a long sentence tells of a red heart and a green star, of a small dotted "
    "square that lies on the left, of two striped circles above it and of what is behind them all."
)


@pytest.fixture(scope="module")
def matcher() -> ClipMatcher:
    return ClipMatcher(ScoreConfig(batch_size=16, device="cpu"), resolve("mini-matcher"))


@pytest.fixture(scope="module")
def photos(photographs) -> list[np.ndarray]:
    return [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:6]]


def boxes_for(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    return np.array(
        [
            [0, 0, width, height],
            [10.4, 20.6, 90.2, 60.9],
            [width / 2 + 0.25, 0, width + 3, height / 2 - 0.25],
            [3, 3, 19, 27],
            [0, 5, width, 45],
            [7, 0, 40, height],
            [50.2, 60.4, 50.3, 60.4],
        ]
    )


def crops_for(image: np.ndarray) -> list[tuple[int, int, int, int]]:
    """The pixels that those boxes reach."""
    height, width = image.shape[:2]
    return [
        (0, 0, width, height),
        (10, 20, 91, 61),
        (width // 2, 0, width, -(-height // 2)),
        (3, 3, 19, 27),
        (0, 5, width, 45),
        (7, 0, 40, height),
        (50, 60, 51, 61),
    ]


def test_boxes_grow_to_whole_pixels_inside_the_image():
    image = np.zeros((80, 120, 3), np.uint8)
    assert whole_pixel_boxes(image, boxes_for(image)) == crops_for(image)
    outside = np.array([[-5.0, -0.5, 0.5, 200.0], [119.9, 79.9, 121.0, 81.0]])
    assert whole_pixel_boxes(image, outside) == [(0, 0, 1, 80), (119, 79, 120, 80)]


@pytest.mark.parametrize("backend", ["torchvision", "pil"])
def test_crops_equal_the_processors_to_one_level_of_grey(photos, backend):
    from transformers import CLIPImageProcessor, CLIPImageProcessorPil

    kind = {"torchvision": CLIPImageProcessor, "pil": CLIPImageProcessorPil}[backend]
    spec = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    processor = kind(
        size={"shortest_edge": 96}, crop_size={"height": 96, "width": 96},
        image_mean=list(spec.mean), image_std=list(spec.std),
    )  # fmt: skip
    for image in photos:
        ours = cut_crops(image, boxes_for(image), spec, side=96, device="cpu")
        for crop, box in zip(ours, crops_for(image), strict=True):
            picture = Image.fromarray(image).crop(box)
            wanted = processor(images=picture, return_tensors="pt")["pixel_values"][0]
            steps = (crop - wanted).abs() * torch.tensor(spec.std).view(3, 1, 1) * 255
            assert steps.max() <= 1.01


def test_embeddings_of_photographs_agree_with_the_processors(matcher, photos):
    from transformers import CLIPImageProcessorPil

    processor = CLIPImageProcessorPil.from_pretrained(str(resolve("mini-matcher").path))
    ours = matcher.embed_regions(photos, [boxes_for(image) for image in photos])
    for image, own in zip(photos, ours, strict=True):
        pictures = [Image.fromarray(image).crop(box) for box in crops_for(image)]
        theirs = matcher.encoder.embed_crops(
            torch.cat([processor(images=p, return_tensors="pt")["pixel_values"] for p in pictures])
        )
        assert (own * theirs.numpy()).sum(axis=1).min() >= 0.999


def test_embeddings_are_the_librarys_own(matcher):
    texts = ["a red circle", "a small dotted blue square on the left"]
    ids = matcher.tokenizer.hf(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        wanted = matcher.encoder.clip.get_text_features(**ids)
    wanted = getattr(wanted, "pooler_output", wanted)
    wanted = torch.nn.functional.normalize(wanted, dim=-1).numpy()
    assert np.abs(matcher.embed_sentences(texts) - wanted).max() < 1e-5


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """As wide as ViT-B/16: small products are not computed as large ones are."""
    two = {"num_hidden_layers": 2}
    vision = {**VIT_B_16["vision_config"], **two, "image_size": 64}
    shape = {**VIT_B_16, "vision_config": vision, "text_config": two}
    return write_random_clip(tmp_path_factory.mktemp("wide"), shape, seed=0, corpus=[SENTENCE])


@pytest.mark.parametrize("model", ["mini-matcher", "wide"])
def test_an_embedding_does_not_know_its_batch(model, request, photos):
    name = str(request.getfixturevalue("wide")) if model == "wide" else model
    many, few, one = (
        ClipMatcher(ScoreConfig(batch_size=size, device="cpu"), resolve(name))
        for size in (128, 5, 1)
    )
    boxes = [boxes_for(image) for image in photos]
    together = many.embed_regions(photos, boxes)
    words = SENTENCE.split()
    texts = [" ".join(words[start:stop]) for start in range(2) for stop in range(start + 1, 30, 3)]
    joined = many.embed_sentences([*texts, texts[0]])
    assert np.array_equal(joined[0], joined[-1])
    for matcher in (few, one):
        for own, theirs in zip(matcher.embed_regions(photos, boxes), together, strict=True):
            assert np.array_equal(own, theirs)
        assert np.array_equal(matcher.embed_sentences(texts), joined[:-1])
    for image, box, theirs in zip(photos, boxes, together, strict=True):
        assert np.array_equal(many.embed_regions([image], [box])[0], theirs)
    alone = np.concatenate([many.embed_sentences([text]) for text in texts])
    assert np.array_equal(alone, joined[:-1])


def test_a_sentence_longer_than_the_context_is_cut_not_refused(matcher):
    embedded = matcher.embed_sentences(["red circle " * 200])
    assert np.isfinite(embedded).all()
    assert np.linalg.norm(embedded[0]) == pytest.approx(1, abs=1e-5)


def test_thin_and_tiny_boxes_have_an_embedding(matcher):
    image = np.random.default_rng(0).integers(0, 255, (4000, 12, 3), np.uint8)
    boxes = np.array([[0, 0, 10, 4000], [3.2, 7.7, 3.3, 7.8], [11.5, 3999.5, 12, 4000]])
    (embedded,) = matcher.embed_regions([image], [boxes])
    assert embedded.shape[0] == 3 and np.isfinite(embedded).all()


def grey_levels(crops, spec):
    return crops.cpu() * torch.tensor(spec.std).view(3, 1, 1) * 255


@pytest.mark.parametrize("limit", [0.5, 2, 40])
def test_crops_on_a_gpu_are_nearly_those_of_the_cpu(photos, monkeypatch, limit):
    """Whether resized on the GPU or, as very large ones are, on the CPU: to one level of grey, and
    to a few at hard edges, where whole grey levels are cut off between rows and columns."""
    spec = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    boxes = boxes_for(photos[0])
    plain = grey_levels(cut_crops(photos[0], boxes, spec, side=48, device="cpu"), spec)
    with pretend_cuda():
        in_one_step = grey_levels(cut_crops(photos[0], boxes, spec, side=48, device="cuda"), spec)
        monkeypatch.setattr(crops, "MAX_SHRINKING", limit)
        limited = grey_levels(cut_crops(photos[0], boxes, spec, side=48, device="cuda"), spec)
    for found, wanted in [(in_one_step, plain), (limited, in_one_step)]:
        apart = (found - wanted).abs()
        assert apart.max() < 5 and (apart > 1.01).float().mean() < 0.005
    large = [
        min(x1 - x0, y1 - y0) > limit * 48 for x0, y0, x1, y1 in whole_pixel_boxes(photos[0], boxes)
    ]
    assert any(large) is (limit < 40)
    for crop, once, cpu, shrunk in zip(limited, in_one_step, plain, large, strict=True):
        assert torch.equal(crop, cpu if shrunk else once)


def test_an_image_larger_than_cudas_kernel_takes(monkeypatch):
    image = np.random.default_rng(0).integers(0, 255, (800, 820, 3), np.uint8)
    spec = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    whole = np.array([[0.0, 0.0, 820.0, 800.0]])
    with pretend_cuda():
        assert torch.equal(
            cut_crops(image, whole, spec, side=16, device="cuda").cpu(),
            cut_crops(image, whole, spec, side=16, device="cpu"),
        )
        monkeypatch.setattr(crops, "MAX_SHRINKING", 1000)
        with pytest.raises(NotOnCuda, match="interpolation parameters"):
            cut_crops(image, whole, spec, side=16, device="cuda")
