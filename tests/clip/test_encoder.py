"""Tokens pooled and projected by hand, and patches that attend to themselves alone."""

from __future__ import annotations

import torch
from plain_clip import plain_encoder
from transformers import CLIPModel

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.pooling import masked_mean, patch_mask, span_mask


def test_pooled_tokens_by_hand() -> None:
    """FAST-GOAL Eq. 7 to 10: the mean, then the norm, then the projection.

    The mean of (5, 0, 1) and (-1, 2, -1) is (2, 1, 0), which the norm makes (1, 0, -1) and the
    projection (2, 0): (1, 0) as an embedding. Norms first would point elsewhere.
    """
    encoder, wild = plain_encoder(), [7.0, 7.0, -9.0]
    patches = torch.tensor([[[5.0, 0, 1], [-1, 2, -1], wild, wild]])
    top = patch_mask(torch.tensor([[[0.0, 0, 2, 1]]]), patch_size=1, grid=2)
    found = encoder.project_patches(masked_mean(patches, top))
    torch.testing.assert_close(found, torch.tensor([[[1.0, 0]]]))
    tokens = torch.tensor([[wild, [5.0, 0, 1], [-1, 2, -1], wild, wild]])
    sentence = span_mask(torch.tensor([[[1, 3]]]), length=5)
    found = encoder.project_tokens(masked_mean(tokens, sentence))
    torch.testing.assert_close(found, torch.tensor([[[1.0, 0]]]))
    torch.testing.assert_close(
        encoder.patch_features(masked_mean(patches, top)), torch.tensor([[[2.0, 0]]])
    )


@torch.no_grad()
def test_patches_that_attend_to_themselves_alone(tiny_clip) -> None:
    """As the last layer answers for a patch that is given to it alone."""
    model = CLIPModel.from_pretrained(tiny_clip).eval()
    encoder = ClipEncoder(model, mean=(0.5,) * 3, std=(0.2,) * 3)
    pixels = torch.randint(0, 255, (2, 3, 32, 32), dtype=torch.uint8)
    found, embedding = encoder.encode_images(pixels, num_tokens=2, unmixed=True)
    normed = (pixels / 255 - 0.5) / 0.2
    before = model.vision_model(pixel_values=normed, output_hidden_states=True).hidden_states[-2]
    last = model.vision_model.encoder.layers[-1]
    for image in range(2):
        for patch in range(16):
            alone = last(before[image, 1 + patch][None, None], None)[0, 0]
            torch.testing.assert_close(found[image, patch], alone, rtol=1e-4, atol=1e-5)
    mixed, same = encoder.encode_images(pixels, num_tokens=2)
    assert not torch.allclose(mixed, found)
    assert torch.equal(embedding, same)
