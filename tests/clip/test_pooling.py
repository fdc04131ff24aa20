"""Boxes to patches and spans to tokens, by hand and against the paper's loop."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glit.models.clip.pooling import coverage, masked_mean, patch_mask, span_mask


def algorithm_1(box, patch_size: int, grid: int) -> list[int]:
    """FAST-GOAL's Algorithm 1 as written: indices of the patches that overlap the box."""
    columns = range(math.floor(box[0] / patch_size), math.ceil(box[2] / patch_size))
    rows = range(math.floor(box[1] / patch_size), math.ceil(box[3] / patch_size))
    return [i * grid + j for i in rows for j in columns]


def selected(box, *, patch_size: int, grid: int) -> list[int]:
    mask = patch_mask(torch.tensor([[box]], dtype=torch.float32), patch_size=patch_size, grid=grid)
    return mask[0, 0].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("box", "patches"),
    [
        ((0, 0, 16, 16), [0]),
        ((0, 0, 17, 16), [0, 1]),
        ((16, 16, 32, 32), [5]),
        ((15, 15, 17, 17), [0, 1, 4, 5]),
        ((0, 0, 64, 64), list(range(16))),
        ((20.5, 33.0, 21.0, 33.5), [9]),
        ((-10, -10, 5, 5), [0]),
        ((60, 60, 90, 90), [15]),
        ((63.9999, 0, 64, 16), [3]),
    ],
)
def test_patches_of_a_box(box, patches) -> None:
    assert selected(box, patch_size=16, grid=4) == patches


@pytest.mark.parametrize("box", [(64, 0, 80, 16), (-9, 0, 0, 16), (5, 5, 5, 9)])
def test_a_box_outside_selects_nothing(box) -> None:
    assert selected(box, patch_size=16, grid=4) == []


@given(
    patch_size=st.sampled_from([8, 14, 16, 32]),
    grid=st.integers(1, 16),
    corners=st.lists(st.integers(0, 4000), min_size=4, max_size=4),
)
def test_equals_algorithm_1(patch_size: int, grid: int, corners: list[int]) -> None:
    side = patch_size * grid
    x0, x1 = sorted(c % (4 * side + 1) / 4 for c in corners[:2])
    y0, y1 = sorted(c % (4 * side + 1) / 4 for c in corners[2:])
    if x0 == x1 or y0 == y1:
        return
    box = (x0, y0, x1, y1)
    assert selected(box, patch_size=patch_size, grid=grid) == algorithm_1(box, patch_size, grid)


def test_scaling_does_not_reach_over_a_patch_edge() -> None:
    """Half of a 500-pixel image is 112 of 224, give or take the last bit: seven patches."""
    half = torch.tensor(250 * (224 / 500)) + 1e-5
    mask = patch_mask(torch.tensor([[[0.0, 0.0, half, 16.0]]]), patch_size=16, grid=14)
    assert int(mask.sum()) == 7


def test_tokens_of_a_span() -> None:
    spans = torch.tensor([[[1, 3], [2, 5], [0, 2], [3, 3], [4, 6]]])
    wanted = [
        [False, True, True, False, False],
        [False, False, True, True, True],
        [False] * 5,
        [False] * 5,
        [False] * 5,
    ]
    assert span_mask(spans, length=5)[0].tolist() == wanted


def test_mean_over_a_mask() -> None:
    tokens = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [5.0, 7.0]]])
    mask = torch.tensor([[[True, True, False], [False, False, True], [False, False, False]]])
    assert masked_mean(tokens, mask)[0].tolist() == [[2.0, 1.0], [5.0, 7.0], [0.0, 0.0]]


def test_gradients_of_the_mean() -> None:
    tokens = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 2, 4) > 0.5
    assert torch.autograd.gradcheck(lambda t: masked_mean(t, mask), (tokens,))


@given(st.lists(st.floats(0, 60), min_size=2, max_size=2), st.floats(0.5, 64), st.floats(0.5, 64))
def test_coverage_is_the_mean_of_a_picture_over_the_box(corner, width, height):
    """Of a picture that is constant in every patch."""
    x0, y0 = corner
    box = torch.tensor([[x0, y0, min(x0 + width, 64), min(y0 + height, 64)]])
    share = coverage(box, patch_size=16, grid=4)
    assert share.sum().item() == pytest.approx(1, abs=1e-5)
    middle = torch.arange(4) * 16 + 8.0
    mean_x = (share.reshape(4, 4) * middle).sum().item()
    edges = [max(min(v, box[0, 2].item()), x0) for v in (0, 16, 32, 48, 64)]
    wanted = sum((b - a) * m for a, b, m in zip(edges, edges[1:], middle.tolist(), strict=False))
    assert mean_x == pytest.approx(wanted / (box[0, 2].item() - x0), abs=1e-2)
    touched = patch_mask(box[None], patch_size=16, grid=4)[0]
    assert not bool((share > 1e-3)[~touched].any())
