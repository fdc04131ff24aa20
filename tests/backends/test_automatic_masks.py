"""Automatic masks against segment-anything's own generator, and the parts of the fast way alone."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from process_settings import tf32_settings
from transformers import SamConfig

from glit.bench.lism_flism.published_sam import build_published, published_sam
from glit.data.geometry import iou
from glit.images import decode
from glit.models.backends.sam import automatic
from glit.models.backends.sam.automatic import _IMAGES_PER_BATCH, _PIXELS_PER_BATCH, AutomaticMasks
from glit.models.backends.sam.decoder import PointDecoder
from glit.models.backends.sam.masks import upscale
from glit.models.backends.sam.model import load_sam
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.importers.sam import DECODER_NORM_EPS, sam_model, sam_weights
from glit.models.weights import resolve

_SIZES = {"image_size": 112, "patch_size": 8}
WINDOWED = SamConfig(
    vision_config={
        **_SIZES, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3,
        "global_attn_indexes": [1], "window_size": 4, "output_channels": 32, "num_pos_feats": 16,
    },
    prompt_encoder_config={**_SIZES, "hidden_size": 32},
    mask_decoder_config={
        "hidden_size": 32, "mlp_dim": 48, "num_attention_heads": 4, "iou_head_hidden_dim": 32,
        "layer_norm_eps": DECODER_NORM_EPS,
    },
)  # fmt: skip
"""Every part of the published encoder on a small scale; windows do not fit the grid of 14."""


@pytest.fixture(scope="module")
def segmenter():
    return load_sam(resolve("mini-segmenter"))


@pytest.fixture(scope="module")
def pictures(scenes):
    """Scenes, one of them wide, one high, one large."""
    found = [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:4]]
    wide, high = found[0][:90], np.ascontiguousarray(found[1][:, 20:110])
    large = found[2].repeat(3, axis=0).repeat(3, axis=1)[:301, :377]
    return [*found, wide, high, np.ascontiguousarray(large)]


@pytest.fixture(scope="module")
def published(segmenter, pictures):
    """What segment-anything answers, made comparable."""
    from segment_anything import SamAutomaticMaskGenerator

    generator = SamAutomaticMaskGenerator(published_sam(segmenter), **asdict(segmenter.thresholds))
    return [generator.generate(picture) for picture in pictures]


@pytest.fixture
def sharing(monkeypatch):
    """Batches of several images on a CPU as well, as a GPU has them."""
    monkeypatch.setitem(_IMAGES_PER_BATCH, "cpu", 64)


def random_pair():
    """segment-anything's model and transformers' with its weights; biases and positions, which
    start at zero, would hide mistakes."""
    torch.manual_seed(0)
    theirs = build_published(WINDOWED)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.05)
    return theirs, sam_model(WINDOWED, sam_weights(theirs.state_dict())).eval()


def box_of(mask):
    rows, columns = np.nonzero(mask["segmentation"])
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_exact_masks_are_those_of_segment_anything(segmenter, pictures, published):
    found = AutomaticMasks(segmenter, exact=True)(pictures)
    assert sum(map(len, published)) > 20
    for own, theirs in zip(found, published, strict=True):
        assert own.boxes.tolist() == [box_of(mask) for mask in theirs]
        assert own.area_px.tolist() == [mask["area"] for mask in theirs]
        for name in ("predicted_iou", "stability_score"):
            wanted = [mask[name] for mask in theirs]
            np.testing.assert_allclose(getattr(own, name), wanted, atol=1e-5)


def test_fast_masks_agree_with_segment_anything(segmenter, pictures, published, sharing):
    found = AutomaticMasks(segmenter)(pictures)
    assert [len(own.boxes) for own in found] == [len(theirs) for theirs in published]
    for own, theirs in zip(found, published, strict=True):
        boxes = np.array([box_of(mask) for mask in theirs], float).reshape(-1, 4)
        assert (iou(boxes, own.boxes.astype(float)).max(axis=1, initial=0) >= 0.98).all()
        wanted = [mask["predicted_iou"] for mask in theirs]
        np.testing.assert_allclose(own.predicted_iou, wanted, atol=1e-4)


def test_images_of_one_batch_do_not_change_each_other(segmenter, pictures, sharing):
    masks = AutomaticMasks(segmenter)
    for alone, together in zip(
        [masks([picture])[0] for picture in pictures], masks(pictures), strict=True
    ):
        assert alone.boxes.tolist() == together.boxes.tolist()
        np.testing.assert_allclose(alone.predicted_iou, together.predicted_iou, atol=1e-5)


@pytest.mark.parametrize("exact", [False, True])
def test_on_a_cpu_neighbours_change_no_bit(segmenter, pictures, monkeypatch, exact):
    masks = AutomaticMasks(segmenter, exact=exact)
    shapes = []
    encoder = masks.model.vision_encoder
    seen = encoder.patch_embed.register_forward_hook(lambda _, x, y: shapes.append(len(x[0])))
    together = masks(pictures[:3])
    seen.remove()
    assert shapes == [1, 1, 1]  # the memory of a batch is its images' added up
    for picture, own in zip(pictures, together, strict=False):
        (alone,) = masks([picture])
        assert alone.predicted_iou.tobytes() == own.predicted_iou.tobytes()
        assert alone.boxes.tobytes() == own.boxes.tobytes()


@pytest.mark.parametrize("exact", [False, True])
def test_nan_is_no_image_without_masks(segmenter, pictures, exact):
    model = copy.deepcopy(segmenter.model)
    with torch.no_grad():
        model.vision_encoder.neck.conv1.weight[0] = float("nan")
    with pytest.raises(FloatingPointError, match="NaN"):
        AutomaticMasks(replace(segmenter, model=model), exact=exact)(pictures[:1])


@pytest.mark.parametrize("height, width", [(16, 40_000), (40_000, 16), (1, 900)])
def test_an_image_of_which_nothing_is_left_has_no_masks(segmenter, pictures, height, width):
    thin = np.zeros((height, width, 3), np.uint8)
    masks = AutomaticMasks(segmenter)
    found = masks([thin, pictures[0]])
    assert [len(each.boxes) for each in found] == [0, len(masks(pictures[:1])[0].boxes)]
    assert found[0].boxes.shape == (0, 4)


def test_few_masks_of_a_small_image_are_enlarged_at_a_time(segmenter, pictures, monkeypatch):
    """On their way they are as large as the encoder's square."""
    monkeypatch.setitem(_PIXELS_PER_BATCH, "cpu", 2 * 128**2)
    masks = AutomaticMasks(segmenter)
    numbers = []
    monkeypatch.setattr(
        automatic,
        "upscale",
        lambda some, **sizes: numbers.append(len(some)) or upscale(some, **sizes),
    )
    masks([np.ascontiguousarray(pictures[0][::4, ::4])])
    assert max(numbers) == 2


@pytest.mark.parametrize("exact, allowed", [(False, False), (True, True)])
def test_float32_convolutions_are_not_shortened_on_a_gpu(segmenter, pictures, exact, allowed):
    """But in the exact mode, which repeats what transformers does on the same machine."""
    seen = []
    masks = AutomaticMasks(segmenter, exact=exact)
    hook = masks.model.vision_encoder.neck.register_forward_hook(
        lambda *_: seen.append(torch.backends.cudnn.allow_tf32)
    )
    assert torch.backends.cudnn.allow_tf32  # torch's default
    masks(pictures[:1])
    hook.remove()
    assert seen == [allowed]
    assert torch.backends.cudnn.allow_tf32


def older_off():
    torch.backends.cudnn.allow_tf32 = False


def newer_on():
    torch.backends.fp32_precision = "tf32"


def newer_off():
    torch.backends.fp32_precision = "ieee"


def newer_for_convolutions():
    torch.backends.cudnn.conv.fp32_precision = "ieee"


@pytest.fixture
def default_tf32():
    """Torch's own settings before and after."""
    wanted = tf32_settings()
    yield
    torch.backends.fp32_precision = "none"
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    torch.backends.cudnn.allow_tf32 = True
    assert tf32_settings() == wanted


@pytest.mark.parametrize(
    "settings",
    [(), (older_off,), (newer_on,), (newer_off,), (newer_for_convolutions,), (newer_on, older_off)],
    ids=lambda settings: " and ".join(each.__name__ for each in settings) or "torch's own",
)
def test_a_callers_settings_for_float32_are_kept_whichever_kind_they_are_of(settings, default_tf32):
    for setting in settings:
        setting()
    before = tf32_settings()
    with no_tf32_convolutions():
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        if before["cudnn.allow_tf32"] != "unreadable":
            assert not torch.backends.cudnn.allow_tf32
    assert tf32_settings() == before


def test_an_image_without_masks_has_none(segmenter, pictures):
    for change in ({"pred_iou_thresh": 2.0}, {"stability_score_thresh": 2.0}):
        for exact in (False, True):
            thresholds = replace(segmenter.thresholds, **change)
            masks = AutomaticMasks(replace(segmenter, thresholds=thresholds), exact=exact)
            assert [len(each.boxes) for each in masks(pictures[:1])] == [0]
    assert AutomaticMasks(segmenter)([]) == []


def test_the_encoder_of_converted_weights_answers_as_the_published_one():
    theirs, ours = random_pair()
    images = torch.randn(3, 3, 112, 112)
    with torch.inference_mode():
        wanted = theirs.image_encoder(images)
        found = torch.cat([ours.vision_encoder(each[None]).last_hidden_state for each in images])
    assert wanted.std() > 0.1
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_decoder_answers_as_the_published_one():
    theirs, ours = random_pair()
    embeddings, points = torch.randn(2, 32, 14, 14), torch.rand(2, 5, 2) * 112
    wanted = torch.rand(2, 5, 3) > 0.5
    wanted[0, 0] = False  # a point nobody wants is not upscaled
    with torch.inference_mode():
        decoder = PointDecoder(ours, torch.float32)
        decoded = decoder.decode(decoder.project_images(embeddings), points)
        masks = decoder.mask_logits(decoded, wanted)
        answers = [
            published_decoder(theirs, e[None], p) for e, p in zip(embeddings, points, strict=True)
        ]
    np.testing.assert_allclose(
        decoded.predicted_iou_IPM, torch.stack([i for _, i in answers]), atol=1e-4
    )
    logits = torch.stack([m for m, _ in answers])
    assert masks.shape == (int(wanted.sum()), 56, 56)
    np.testing.assert_allclose(masks, logits[wanted], atol=1e-4)


def published_decoder(model, embedding, points):
    labels = torch.ones(len(points), 1)
    sparse, dense = model.prompt_encoder(points=(points[:, None], labels), boxes=None, masks=None)
    return model.mask_decoder(
        image_embeddings=embedding,
        image_pe=model.prompt_encoder.get_dense_pe(),
        sparse_prompt_embeddings=sparse,
        dense_prompt_embeddings=dense,
        multimask_output=True,
    )


def test_the_encoder_can_be_compiled(segmenter, pictures, monkeypatch):
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend="eager"))
    plain = AutomaticMasks(segmenter)(pictures[:1])[0]
    compiled = AutomaticMasks(segmenter, compiled=True)(pictures[:1])[0]
    assert plain.boxes.tolist() == compiled.boxes.tolist()


@pytest.mark.parametrize("size", [1.0, 400.0])
def test_norms_square_their_input_in_float32(size):
    """In float16 a number over 256 would be squared to infinity and the embedding be zero."""
    _, model = random_pair()
    with torch.no_grad():
        model.vision_encoder.neck.conv2.weight *= size
        images = torch.randn(1, 3, 112, 112, generator=torch.Generator().manual_seed(0))
        wanted = model.vision_encoder(images).last_hidden_state
        with torch.autocast("cpu", torch.float16):
            found = model.vision_encoder(images).last_hidden_state
    assert float((found - wanted).norm() / wanted.norm()) < 0.02
