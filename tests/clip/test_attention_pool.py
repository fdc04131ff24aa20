"""Tokens pooled for a query, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from glit.clip.attention_pool import AttentionPool


def plain(width: int, **options) -> AttentionPool:
    """One that projects nothing: query, key, value and output are what they were."""
    found = AttentionPool(width, **options).double()
    with torch.no_grad():
        found.attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        found.attention.out_proj.weight.copy_(torch.eye(width))
    return found


def test_one_head_by_hand() -> None:
    """Width 3 has a single head; logits are products over sqrt 3."""
    query = torch.tensor([[[1.0, 0, 0]]], dtype=torch.float64)
    tokens = torch.tensor([[[2.0, 0, 0], [0, 4.0, 0]]], dtype=torch.float64)
    share = math.exp(2 / math.sqrt(3)) / (math.exp(2 / math.sqrt(3)) + 1)
    found = plain(3)(query, tokens)
    wanted = torch.tensor([[[2 * share, 4 * (1 - share), 0]]], dtype=torch.float64)
    torch.testing.assert_close(found, wanted)
    share = math.exp(2 / math.sqrt(3)) / (math.exp(2 / math.sqrt(3)) + 2)
    rest = 1 / (math.exp(2 / math.sqrt(3)) + 2)
    found = plain(3, zero_key=True)(query, tokens)
    wanted = torch.tensor([[[2 * share, 4 * rest, 0]]], dtype=torch.float64)
    torch.testing.assert_close(found, wanted)


def test_norms_and_the_mlp_stand_where_they_should() -> None:
    torch.manual_seed(0)
    query, tokens = torch.randn(2, 3, 8).double(), torch.randn(2, 5, 8).double()
    bare, normed = plain(8), plain(8, norms=True)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (8,))

    torch.testing.assert_close(normed(query, tokens), bare(norm(query), norm(tokens)))
    with_mlp = plain(8, mlp=True)
    found = bare(query, tokens)
    hidden = norm(found) @ with_mlp.mlp.widen.weight.T + with_mlp.mlp.widen.bias
    hidden = hidden * torch.sigmoid(1.702 * hidden)
    wanted = found + hidden @ with_mlp.mlp.narrow.weight.T + with_mlp.mlp.narrow.bias
    torch.testing.assert_close(with_mlp(query, tokens), wanted)


@pytest.mark.parametrize("options", [{}, {"norms": True, "zero_key": True}, {"mlp": True}])
def test_the_order_of_tokens_and_other_queries_do_not_matter(options) -> None:
    torch.manual_seed(0)
    pool = AttentionPool(8, **options).double()
    query, tokens = torch.randn(2, 3, 8).double(), torch.randn(2, 5, 8).double()
    wanted = pool(query, tokens)
    torch.testing.assert_close(pool(query, tokens[:, [4, 2, 0, 1, 3]]), wanted)
    torch.testing.assert_close(pool(query[:, 1:2], tokens), wanted[:, 1:2])
