"""MobileSAM: the encoder against figures of the published one, its weights on real photographs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from glit.backends.sam.model import (
    MaskThresholds,
    SamConfig,
    build_sam,
    load_checkpoint,
    load_sam,
    save_sam,
)
from glit.backends.sam.tiny_vit import TinyViT, _TinyVitBlock, _WindowAttention
from glit.data.geometry import iou
from glit.errors import WeightsError
from glit.images import decode


@pytest.fixture(scope="module")
def mobile_sam():
    import fetched

    return load_checkpoint(fetched.mobile_sam())


def shaken(module: nn.Module) -> nn.Module:
    """Every weight and running statistic away from the values that hide mistakes."""
    generator = torch.Generator().manual_seed(0)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(noise.abs() + 0.5 if name.endswith("running_var") else 0.3 * noise)
    return module.eval()


@torch.inference_mode()
def test_attention_is_the_formula_with_a_bias_by_distance():
    attention = shaken(_WindowAttention(8, 2, 2))
    near, side, below, across = attention.attention_biases.unbind(1)
    x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(1))
    normed = nn.functional.layer_norm(x, (8,), attention.norm.weight, attention.norm.bias)
    heads = []
    for head in range(2):
        qkv = attention.qkv(normed)[0, :, 12 * head : 12 * head + 12]
        query, key, value = qkv.split(4, dim=1)
        n, s, b, a = near[head], side[head], below[head], across[head]
        bias = torch.tensor([[n, s, b, a], [s, n, a, b], [b, a, n, s], [a, b, s, n]])
        heads.append((query @ key.T / 2 + bias).softmax(dim=1) @ value)
    expected = attention.proj(torch.cat(heads, dim=1))
    torch.testing.assert_close(attention(x)[0], expected, atol=1e-6, rtol=0)


@torch.inference_mode()
def test_windows_are_filled_with_zeros_and_keep_to_themselves():
    block = shaken(_TinyVitBlock(8, 2, 3))
    x = torch.randn(2, 8, 4, 5, generator=torch.Generator().manual_seed(1))
    corner = torch.zeros(2, 8, 3, 3)  # the window at the lower right: one row, two columns
    corner[:, :, :1, :2] = x[:, :, 3:, 3:]
    alone = block.attn(corner.flatten(2).transpose(1, 2)).transpose(1, 2).view(2, 8, 3, 3)
    attended = block._window_attention(x)
    assert attended.shape == x.shape
    torch.testing.assert_close(attended[:, :, 3:, 3:], alone[:, :, :1, :2])
    x[:, 0, 0, 0] += 1
    changed = (block._window_attention(x) != attended).any(dim=1)[0]
    assert changed[:3, :3].all() and not changed[3:].any() and not changed[:, 3:].any()


@torch.inference_mode()
def test_an_embedding_has_stride_16_and_batches_change_nothing():
    encoder = shaken(TinyViT(img_size=128, out_chans=32))
    x = torch.randn(3, 3, 128, 128, generator=torch.Generator().manual_seed(1))
    together = encoder(x)
    assert together.shape == (3, 32, 8, 8)
    one_by_one = torch.cat([encoder(image[None]) for image in x])
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-5)
    assert (together[0] != together[1]).any()
    with pytest.raises(ValueError, match="img_size: found 100, want a multiple of 16"):
        TinyViT(img_size=100)


def test_a_saved_model_comes_back(tmp_path):
    config = SamConfig(encoder="tiny_vit", image_size=64, prompt_dim=32, decoder_mlp_dim=64)
    model = shaken(build_sam(config))
    model.image_encoder.patch_embed.seq[0].bn.num_batches_tracked.fill_(100_001)
    save_sam(model, config, tmp_path, thresholds=MaskThresholds(points_per_side=8))
    loaded, found, thresholds = load_sam(tmp_path)
    assert (found, thresholds.points_per_side) == (config, 8)
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], atol=1e-3, rtol=1e-3)
    counter = loaded.image_encoder.patch_embed.seq[0].bn.num_batches_tracked
    assert counter == 100_001  # beyond what fp16 holds


@torch.inference_mode()
def test_published_weights_give_the_published_embedding(mobile_sam):
    """The figures are the reference implementation's, of a picture drawn by two formulas."""
    assert sum(p.numel() for p in mobile_sam.image_encoder.parameters()) == 5_743_892
    embedding = mobile_sam.image_encoder(picture())[0]
    assert embedding.shape == (256, 64, 64)
    found = [embedding.mean(), embedding.std(), embedding[0, 0, 0], embedding[100, 31, 40]]
    found += [embedding[255, 63, 63], embedding[17, 5, 60]]
    assert [float(x) for x in found] == pytest.approx(EMBEDDING, abs=1e-4)


EMBEDDING = [-0.002429, 0.099714, -0.079471, -0.067787, -0.136615, -0.068758]


def picture() -> torch.Tensor:
    """Normalised pixels ``[1, 3, 1024, 1024]``: waves in the first half, a disc in the second."""
    y, x = torch.meshgrid(torch.arange(1024.0), torch.arange(1024.0), indexing="ij")
    waves = torch.sin(x / 20) * torch.cos(y / 33)
    disc = ((x - 700) ** 2 + (y - 400) ** 2 < 200**2).float()
    return torch.stack([waves, disc - 0.5, waves * (1 - disc)])[None]


# What a person sees on two of the photographs, in pixels.
SEEN = {
    "COCO_train2014_000000424222": ("road sign", (284, 28, 445, 294)),
    "COCO_train2014_000000300741": ("horse", (259, 70, 640, 428)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_masks_lie_on_objects_of_photographs(mobile_sam, photographs, name):
    from segment_anything import SamAutomaticMaskGenerator

    image = decode((photographs / f"{name}.jpg").read_bytes())
    generator = SamAutomaticMaskGenerator(mobile_sam, points_per_side=4, points_per_batch=4)
    masks = generator.generate(image)
    shares = np.array([mask["area"] for mask in masks]) / image[..., 0].size
    boxes = np.array([mask["bbox"] for mask in masks], dtype=float)
    boxes[:, 2:] += boxes[:, :2] + 1
    boxes = boxes[(shares >= 0.01) & (shares <= 0.8)]
    _, seen = SEEN[name]
    assert iou(np.array([seen], dtype=float), boxes).max() >= 0.9


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut off"])
def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "mobile_sam.pt"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="not a published segment-anything checkpoint") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["patch_embed.seq.0.c.weight", "patch_embed.proj.weight", "else"])
def test_weights_of_another_model_are_refused(tmp_path, key):
    path = tmp_path / "other.pth"
    torch.save({f"image_encoder.{key}": torch.zeros(7, 3, 3, 3)}, path)
    with pytest.raises(WeightsError, match="nor of MobileSAM"):
        load_checkpoint(path)
