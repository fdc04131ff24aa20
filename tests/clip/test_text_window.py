"""Stretching text positions by Long-CLIP's rule."""

from __future__ import annotations

import pytest
import torch
from transformers import CLIPModel

from glit.errors import RecipeError
from glit.models.clip.text_window import stretch_model, stretch_positions


def test_clip_positions_become_248() -> None:
    old = torch.randn(77, 4)
    new = stretch_positions(old, 248)
    assert new.shape == (248, 4)
    assert torch.equal(new[:20], old[:20])
    for i in range(56):
        for j in range(4):
            wanted = (4 - j) / 4 * old[20 + i] + j / 4 * old[21 + i]
            torch.testing.assert_close(new[20 + 4 * i + j], wanted)
    for j in range(4):
        torch.testing.assert_close(new[244 + j], old[76] + (old[76] - old[75]) * j / 4)


def test_a_shorter_window_is_a_prefix() -> None:
    old = torch.randn(77, 4)
    assert torch.equal(stretch_positions(old, 100), stretch_positions(old, 248)[:100])
    assert torch.equal(stretch_positions(old, 30), old[:30])


def test_beyond_the_reach() -> None:
    with pytest.raises(RecipeError, match=r"train.context = 249 .* use at most 248"):
        stretch_positions(torch.randn(77, 4), 249)


def test_a_model_takes_long_texts_and_is_left_alone_the_second_time(tiny_clip) -> None:
    model = CLIPModel.from_pretrained(tiny_clip)
    before = model.get_text_features(input_ids=torch.arange(10)[None]).pooler_output
    stretch_model(model, 248)
    weight = model.text_model.embeddings.position_embedding.weight
    assert weight.shape[0] == 248 and weight.requires_grad
    assert model.config.text_config.max_position_embeddings == 248
    after = model.get_text_features(input_ids=torch.arange(10)[None]).pooler_output
    torch.testing.assert_close(before, after)
    model.get_text_features(input_ids=torch.ones(1, 248, dtype=torch.long))
    stretch_model(model, 248)
    assert model.text_model.embeddings.position_embedding.weight is weight
