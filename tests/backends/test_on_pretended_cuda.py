"""Every backend on a pretended GPU answers as on the CPU, and seldom waits for the GPU."""

from __future__ import annotations

from contextlib import nullcontext

import cpu_only
import numpy as np
import pytest
from pretend_cuda import counting, pretend_cuda

from glit.images import decode
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.proposers import PROPOSERS
from glit.models.clip.crops import cut_crops
from glit.models.clip.image_processor import Preprocessing
from glit.models.weights import resolve
from glit.stages.caption import CaptionConfig
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig

# How often a GPU is waited for with nothing left to do: these numbers may only go down. Answers read
# one batch late (``Event.synchronize``) are waited for while it is at the next batch.
YOLOS_SYNCS = 0
YOLOS_LATE_PER_BATCH = 1
CLIP_PER_CALL = 1
SAM_PER_IMAGE = 1
SAM_LATE_PER_BATCH_OF_POINTS = 1
EXACT_SAM_PER_IMAGE = 19
CAPTIONER_PER_TOKEN = 1.5

NUM_IMAGES = 4
BOXES = np.array([[0.0, 0.0, 128.0, 128.0], [10.0, 20.0, 70.0, 100.0]])
SENTENCES = ["a red circle", "a large blue square left of it", "x", "two green triangles"] * 2


@pytest.fixture(scope="module")
def pictures(scenes):
    files = sorted((scenes / "images").iterdir())[:NUM_IMAGES]
    return [decode(path.read_bytes()) for path in files]


def on_a_processor(device, precision):
    """One without instructions for bfloat16, which warns if it has to compute in it."""
    if (device, precision) == ("cpu", "bfloat16"):
        return cpu_only.processor(bfloat16=False)
    return nullcontext()


def proposer(backend, model, device, **changes):
    config = ProposeConfig(device=device, score_threshold=0.3, **changes)
    return PROPOSERS[backend].make(config, resolve(model))


def test_yolos(pictures):
    wanted = proposer("yolos", "mini-proposer", "cpu").detect(pictures)
    with pretend_cuda():
        yolos = proposer("yolos", "mini-proposer", "cuda", precision="float32", batch_size=2)
        with counting() as counts:
            assert yolos.detect(pictures) == wanted
    assert counts.num_syncs <= YOLOS_SYNCS, counts
    assert counts.num_late <= YOLOS_LATE_PER_BATCH * NUM_IMAGES / 2


@pytest.mark.parametrize("precision, allowed", [("float32", 2e-3), ("bfloat16", 2e-2)])
def test_clip(pictures, precision, allowed):
    """Crops are resized as float32 on a GPU; see ``cut_crops``."""

    def embedded(device):
        config = ScoreConfig(device=device, precision=precision, batch_size=4)
        with on_a_processor(device, precision):
            matcher = ClipMatcher(config, resolve("mini-matcher"))
        with counting() as counts:
            regions = matcher.embed_regions(pictures, [BOXES] * NUM_IMAGES)
            sentences = matcher.embed_sentences(SENTENCES)
        return np.concatenate(regions), sentences, counts

    wanted_regions, wanted_sentences, _ = embedded("cpu")
    with pretend_cuda():
        regions, sentences, counts = embedded("cuda")
    np.testing.assert_allclose(regions, wanted_regions, atol=allowed)
    np.testing.assert_allclose(sentences, wanted_sentences, atol=allowed / 10)
    assert counts.num_syncs <= CLIP_PER_CALL * len(["regions", "sentences"]), counts


@pytest.mark.parametrize(
    "changes", [{}, {"exact_masks": True}, {"precision": "bfloat16"}], ids=["sam", "exact", "half"]
)
@pytest.mark.slow
def test_sam(pictures, changes):
    if "precision" in changes:  # which takes a CPU many times as long
        pictures = pictures[:2]
    with on_a_processor("cpu", changes.get("precision", "float32")):
        reference = proposer("sam", "mini-segmenter", "cpu", **changes)
    wanted = reference.detect(pictures)
    with pretend_cuda():
        sam = proposer("sam", "mini-segmenter", "cuda", batch_size=2, **changes)
        with counting() as counts:
            found = sam.detect(pictures)
    if (
        "precision" in changes
    ):  # autocast rounds elsewhere on a GPU, and each image is of 100 points
        assert [len(each) for each in found] == pytest.approx([len(e) for e in wanted], abs=2)
    else:
        assert found == wanted
    if "exact_masks" in changes:
        assert counts.num_syncs <= EXACT_SAM_PER_IMAGE * NUM_IMAGES, counts
    else:
        num_points = sam.masks._thresholds.points_per_side**2
        batches = -(-num_points // (128 // 2)) * NUM_IMAGES / 2
        assert counts.num_syncs <= SAM_PER_IMAGE * NUM_IMAGES, counts
        assert counts.num_late <= SAM_LATE_PER_BATCH_OF_POINTS * batches


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.slow
def test_the_captioner(pictures, precision, temperature):
    num_tokens = 12

    def captions(device):
        config = CaptionConfig(
            backend="transformers", device=device, precision=precision, max_tokens=num_tokens
        )
        with on_a_processor(device, precision):
            model = resolve("mini-captioner")
            captioner = CAPTIONERS["transformers"].make(config, model, "describe")
        with counting() as counts:
            seeds = range(NUM_IMAGES)
            return captioner.caption(pictures, seeds=seeds, temperature=temperature), counts

    wanted, _ = captions("cpu")
    with pretend_cuda():
        found, counts = captions("cuda")
    assert found == wanted
    batches = NUM_IMAGES if temperature else 1
    assert counts.num_syncs <= CAPTIONER_PER_TOKEN * num_tokens * batches + 16, counts


def test_a_crop_is_two_launches():
    """Resized and copied; rounding and normalising are one launch each for all crops of an image."""
    spec = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    image = np.zeros((60, 80, 3), dtype=np.uint8)
    boxes = np.array([[i, i, i + 30.0, i + 20.0] for i in range(20)])
    with pretend_cuda(), counting() as counts:
        cut_crops(image, boxes, spec, side=32, device="cuda")
    assert counts.calls["_upsample_bicubic2d_aa"] == counts.calls["copy_"] == 20
    once = ("round_", "clamp_", "sub_", "mul_", "contiguous", "clone")
    assert [counts.calls[name] for name in once] == [1, 1, 1, 1, 0, 0]
