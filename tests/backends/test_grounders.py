"""Grounders of the real architectures with random weights, against the library's own way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from pretend_cuda import pretend_cuda
from tiny_grounders import MAKERS

from glit.data.rle import decode_rle, read_rle
from glit.errors import WeightsError
from glit.models.backends.grounders import GROUNDERS
from glit.models.backends.grounders.choose import best_of_each
from glit.models.backends.protocols import Grounder, GrounderConfig
from glit.models.weights import resolve
from glit.recipes.resources import mini_model

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (60, 90, 3), dtype=np.uint8)
OTHER = RNG.integers(0, 256, (90, 60, 3), dtype=np.uint8)
SQUARE = PICTURE[:, :60]
PHRASES = ["a red ring", "a small dog", "a red ring"]


@pytest.fixture(scope="module", params=MAKERS)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    return request.param, MAKERS[request.param](path)


def opened(folder, *, device: str = "cpu", **options) -> Grounder:
    kind, path = folder
    config = GrounderConfig(
        device=device, precision="float32", threshold=0.0, max_boxes=100, **options
    )
    backend = GROUNDERS["sam3" if kind == "sam3" else "zero-shot"]
    return backend.make(config, resolve(str(path)))


def test_boxes_are_in_pixels_and_equal_phrases_have_equal_answers(folder):
    [found] = opened(folder).find([PICTURE], [PHRASES])
    assert len(found) == 3 and found[0] is found[2]
    for each in found:
        assert 0 < len(each.boxes) == len(each.scores)
        assert (np.diff(each.scores) <= 0).all() and ((each.scores >= 0) & (each.scores <= 1)).all()
        assert (each.boxes >= 0).all() and (each.boxes[:, [0, 2]] <= 90).all()
        assert (each.boxes[:, [1, 3]] <= 60).all()
    assert max(each.boxes.max() for each in found) > 10  # pixels, not shares


def test_the_batch_does_not_matter(folder):
    """Images together and one by one; with a phrase more, where a phrase stands for itself."""
    grounder = opened(folder)
    together = grounder.find([PICTURE, OTHER, PICTURE], [PHRASES, PHRASES[1:], PHRASES])
    for image, phrases, wanted in zip(
        [PICTURE, OTHER, PICTURE], [PHRASES, PHRASES[1:], PHRASES], together, strict=True
    ):
        [alone] = opened(folder, batch_size=1).find([image], [phrases])
        for a, b in zip(alone, wanted, strict=True):
            np.testing.assert_allclose(a.scores, b.scores, atol=2e-4)
            np.testing.assert_allclose(a.boxes, b.boxes, atol=0.05)


def test_no_phrase_and_no_image(folder):
    grounder = opened(folder)
    assert grounder.find([PICTURE], [[]]) == [[]]
    assert grounder.find([], []) == []


def test_many_phrases_and_very_long_ones(folder):
    phrases = [f"a {'small ' * n}dog" for n in range(60)] + ["ring " * 400, "…", "A. B."]
    [found] = opened(folder).find([PICTURE], [phrases])
    assert len(found) == len(phrases)


def test_scores_are_those_of_the_librarys_own_pipeline(folder):
    kind, path = folder
    [[found]] = opened(folder).find([SQUARE], [["a red ring"]])
    np.testing.assert_allclose(found.scores[0], library_score(kind, path), atol=2e-4)


def library_score(kind: str, path) -> float:
    """The score of the surest box of "a red ring" by transformers alone."""
    from transformers import AutoProcessor, Sam3Model, Sam3Processor, pipeline

    picture = Image.fromarray(SQUARE)
    if kind == "sam3":
        inputs = Sam3Processor.from_pretrained(path)(
            images=picture, text="a red ring", return_tensors="pt"
        )
        with torch.inference_mode():
            outputs = Sam3Model.from_pretrained(path).eval()(
                **{name: inputs[name] for name in ("pixel_values", "input_ids", "attention_mask")}
            )
        answer = AutoProcessor.from_pretrained(path).post_process_object_detection(
            outputs, threshold=0.0, target_sizes=[(60, 60)]
        )[0]
        return float(answer["scores"].max())
    if kind == "omdet-turbo":
        from transformers import OmDetTurboForObjectDetection

        processor = AutoProcessor.from_pretrained(path)
        inputs = processor(
            images=picture, text=[["a red ring"]], task="Detect the things named.",
            return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            outputs = OmDetTurboForObjectDetection.from_pretrained(path).eval()(**inputs)
        answer = processor.post_process_grounded_object_detection(
            outputs, text_labels=[["a red ring"]], threshold=0.0, target_sizes=[(60, 60)]
        )[0]
        return float(answer["scores"].max())
    if "dino" in kind:
        from transformers import AutoModelForZeroShotObjectDetection

        inputs = AutoProcessor.from_pretrained(path)(
            images=picture, text="a red ring.", return_tensors="pt"
        )
        with torch.inference_mode():
            model = AutoModelForZeroShotObjectDetection.from_pretrained(path).eval()
            tokens = model(**inputs).logits[0].sigmoid()
        return float(tokens[:, 1:4].max())  # the phrase's own, without marks and full stop
    asked = pipeline("zero-shot-object-detection", model=str(path))
    found = asked(picture, candidate_labels=["a red ring"], threshold=0.0)
    return max(each["score"] for each in found)


def test_on_a_pretended_gpu_it_finds_the_same(folder):
    [wanted] = opened(folder).find([PICTURE], [PHRASES])
    with pretend_cuda():
        [found] = opened(folder, device="cuda").find([PICTURE], [PHRASES])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.boxes, b.boxes, atol=0.02)
        np.testing.assert_allclose(a.scores, b.scores, atol=2e-4)


@pytest.mark.parametrize("backend", ["zero-shot", "sam3"])
def test_a_model_of_another_kind_is_refused(backend):
    with pytest.raises(WeightsError, match=f"model_type 'clip', but ground.backend = '{backend}'"):
        GROUNDERS[backend].make(GrounderConfig(), resolve(str(mini_model("matcher"))))


def chosen(boxes, scores, **options):
    config = GrounderConfig(**{"threshold": 0.3, **options})
    found = best_of_each(np.array(boxes), np.array(scores), width=90, height=60, config=config)
    return [each.boxes.tolist() for each in found]


def test_one_of_each_near_duplicate_is_kept_for_each_phrase_by_itself():
    boxes = [[0.0, 0, 10, 10], [1, 0, 10, 10], [20, 0, 30, 10], [-5, -5, 0, 0]]
    scores = [[0.9, 0.4], [0.8, 0.7], [0.2, 0.5], [0.9, 0.9]]
    a, b, c = boxes[:3]
    assert chosen(boxes, scores) == [[a], [b, c]]
    assert chosen(boxes, scores, max_boxes=1) == [[a], [b]]
    assert chosen(boxes, scores, threshold=1.0) == [[], []]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_an_error(wrong):
    with pytest.raises(FloatingPointError, match="NaN"):
        chosen([[0.0, 0, wrong, 10]], [[0.9]])
    with pytest.raises(FloatingPointError, match="NaN"):
        chosen([[0.0, 0, 10, 10]], [[wrong]])


def test_masks_of_sam3_are_those_of_transformers(tmp_path):
    from transformers import Sam3Model, Sam3Processor

    path = MAKERS["sam3"](tmp_path / "sam3")
    [[found]] = opened(("sam3", path), keep_masks=True, nms_iou=1.0).find([SQUARE], [["a ring"]])
    processor = Sam3Processor.from_pretrained(path)
    inputs = processor(images=Image.fromarray(SQUARE), text="a ring", return_tensors="pt")
    with torch.inference_mode():
        outputs = Sam3Model.from_pretrained(path).eval()(
            **{name: inputs[name] for name in ("pixel_values", "input_ids", "attention_mask")}
        )
    [answer] = processor.image_processor.post_process_instance_segmentation(
        outputs, threshold=0.0, target_sizes=[(60, 60)]
    )
    assert len(found.masks) == len(found.boxes) > 0
    for box, mask in zip(found.boxes, found.masks, strict=True):
        nearest = np.abs(answer["boxes"].numpy().clip(0, 60) - box).max(axis=1)
        assert nearest.min() < 0.01
        wanted = answer["masks"][int(nearest.argmin())].numpy().astype(bool)
        ours = decode_rle(read_rle(mask, height=60, width=60), height=60, width=60)
        assert (ours != wanted).mean() < 0.01  # pixels at one half to the last digit
    assert len(set(found.masks)) > 1
    [[plain]] = opened(("sam3", path), nms_iou=1.0).find([SQUARE], [["a ring"]])
    assert plain.masks == () and np.allclose(plain.boxes, found.boxes)
