"""Tokens condensed by attention."""

from __future__ import annotations

import math

import torch

from glit.models.clip.refinement import TokenRefinement


def test_a_case_by_hand() -> None:
    """One query that likes the first coordinate after the norm, twice as sharp."""
    found = TokenRefinement(width=5, num_queries=1).double()
    with torch.no_grad():
        found.keys.weight.zero_()
        found.keys.weight[0, 0] = 1
        found.keys.bias.zero_()
        found.queries.weight.fill_(1)
        found.scale.fill_(2)
    tokens = torch.tensor([[[2.0, 0, 0, 0, 0], [0, 0, 0, 0, 2.0]]], dtype=torch.float64)
    deviation = math.sqrt(0.64 + 1e-5)  # mean 0.4, variance (1.6^2 + 4 * 0.4^2) / 5
    logits = [2 * gelu(1.6 / deviation), 2 * gelu(-0.4 / deviation)]
    share = 1 / (1 + math.exp(logits[1] - logits[0]))
    wanted = torch.tensor([[[2 * share, 0, 0, 0, 2 * (1 - share)]]], dtype=torch.float64)
    torch.testing.assert_close(found(tokens), wanted)


def gelu(value: float) -> float:
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


def test_order_and_padding_do_not_matter() -> None:
    torch.manual_seed(0)
    found = TokenRefinement(width=10, num_queries=3)
    tokens = torch.randn(2, 6, 10)
    valid = torch.arange(6) < torch.tensor([[6], [4]])
    wanted = found(tokens, valid)
    torch.testing.assert_close(found(tokens[1:, :4]), wanted[1:])
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    torch.testing.assert_close(found(tokens[:, order], valid[:, order]), wanted)
    garbage = torch.where(valid[..., None], tokens, torch.full_like(tokens, 1e6))
    torch.testing.assert_close(found(garbage, valid), wanted)
    assert bool(found(tokens, torch.zeros(2, 6, dtype=torch.bool)).isfinite().all())


def test_gradients() -> None:
    torch.manual_seed(0)
    found = TokenRefinement(width=5, num_queries=2).double()
    tokens = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, True, True], [True, False, True]])
    parameters = tuple(found.parameters())

    def run(tokens, *_):
        return found(tokens, valid)

    assert torch.autograd.gradcheck(run, (tokens, *parameters))
