"""Tokens pooled for a query, by hand."""

from __future__ import annotations

import math

import torch

from glit.models.clip.attention_pool import AttentionPool


def plain(width: int) -> AttentionPool:
    """One that projects nothing and adds nothing: queries find means of the tokens as they are."""
    found = AttentionPool(width).double()
    with torch.no_grad():
        found.attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        found.attention.out_proj.weight.copy_(torch.eye(width))
        for linear in (found.mlp.widen, found.mlp.narrow):
            linear.weight.zero_()
            linear.bias.zero_()
    return found


def test_one_head_by_hand() -> None:
    """Width 3 has a single head; logits are products over sqrt 3."""
    query = torch.tensor([[[1.0, 0, 0]]], dtype=torch.float64)
    tokens = torch.tensor([[[2.0, 0, 0], [0, 4.0, 0]]], dtype=torch.float64)
    share = math.exp(2 / math.sqrt(3)) / (math.exp(2 / math.sqrt(3)) + 1)
    wanted = torch.tensor([[[2 * share, 4 * (1 - share), 0]]], dtype=torch.float64)
    torch.testing.assert_close(plain(3)(query, tokens), wanted)


def test_the_mlp_by_hand() -> None:
    """A single token (3, 1, -1) is what is found. The norm makes it (1, 0, -1); the first hidden
    one is twice the first coordinate, 2, through CLIP's GELU 2 sigmoid(3.404), and is added to the
    second coordinate."""
    pool = plain(3)
    with torch.no_grad():
        pool.mlp.norm.weight.fill_((2 / 3) ** 0.5)
        pool.mlp.widen.weight[0, 0] = 2
        pool.mlp.narrow.weight[1, 0] = 1
    token = torch.tensor([[[3.0, 1, -1]]], dtype=torch.float64)
    wanted = torch.tensor([[[3, 1 + 2 / (1 + math.exp(-3.404)), -1]]], dtype=torch.float64)
    found = pool(torch.zeros(1, 1, 3).double(), token)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)  # the norm's own epsilon


def test_the_order_of_tokens_and_other_queries_do_not_matter() -> None:
    torch.manual_seed(0)
    pool = AttentionPool(8).double()
    query, tokens = torch.randn(2, 3, 8).double(), torch.randn(2, 5, 8).double()
    wanted = pool(query, tokens)
    torch.testing.assert_close(pool(query, tokens[:, [4, 2, 0, 1, 3]]), wanted)
    torch.testing.assert_close(pool(query[:, 1:2], tokens), wanted[:, 1:2])
