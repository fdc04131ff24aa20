"""Scores of several vectors a side, against loops."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glit.models.clip import late_interaction as module
from glit.models.clip.late_interaction import late_interaction


def vectors(*shape: int, seed: int, dtype=torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


def everything(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bool)


def test_two_vectors_against_one() -> None:
    """The first patch finds the word, the second does not; the word finds the first patch."""
    image, text = torch.eye(2)[None], torch.eye(2)[None, :1]
    found = late_interaction(image, everything(1, 2), text, everything(1, 1))
    assert found.item() == pytest.approx((1 + 0) / 2 + 1)


@pytest.mark.parametrize("at_once", [1, 1 << 24])
def test_against_a_loop_over_pairs_with_padding(monkeypatch, at_once: int) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    image, text = vectors(3, 4, 6, seed=0), vectors(5, 7, 6, seed=1)
    patches = torch.arange(4) < torch.tensor([[4], [1], [3]])
    words = torch.arange(7) >= torch.tensor([[0], [6], [2], [3], [5]])
    found = late_interaction(image, patches, text, words)
    for i in range(3):
        for t in range(5):
            cosine = image[i][patches[i]] @ text[t][words[t]].T
            wanted = cosine.amax(dim=1).mean() + cosine.amax(dim=0).mean()
            assert found[i, t].item() == pytest.approx(wanted.item())


def test_what_stands_in_padding_changes_nothing() -> None:
    image, text = vectors(2, 3, 4, seed=0), vectors(2, 5, 4, seed=1)
    words = torch.arange(5) < torch.tensor([[5], [2]])
    other = torch.where(words[..., None], text, -text)
    wider = torch.cat([text, vectors(2, 2, 4, seed=2)], dim=1)
    wanted = late_interaction(image, everything(2, 3), text, words)
    assert torch.equal(late_interaction(image, everything(2, 3), other, words), wanted)
    words = torch.cat([words, ~everything(2, 2)], dim=1)
    torch.testing.assert_close(late_interaction(image, everything(2, 3), wider, words), wanted)


def test_no_text_is_no_score() -> None:
    found = late_interaction(
        vectors(2, 3, 4, seed=0), everything(2, 3), vectors(0, 5, 4, seed=1), everything(0, 5)
    )
    assert found.shape == (2, 0)
