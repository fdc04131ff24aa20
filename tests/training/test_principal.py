"""Rebuilding from principal components: against plain PCA, by gradient, and where it could break."""

from __future__ import annotations

import pytest
import torch

from glit.training.objectives.long_clip import rebuilt


def drawn(num: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, width, generator=generator, dtype=torch.float64)


def all_of(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(x), dtype=torch.bool)


@pytest.mark.parametrize("num_components", [1, 3, 5])
def test_it_is_pca_by_singular_values(num_components):
    x = drawn(12, 5)
    mean = x.mean(dim=0)
    _, _, axes = torch.linalg.svd(x - mean, full_matrices=False)
    kept = axes[:num_components]
    wanted = (x - mean) @ kept.T @ kept + mean
    torch.testing.assert_close(rebuilt(x, all_of(x), num_components), wanted)


def test_points_on_a_line_come_back_from_one_component():
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 6.0]])
    torch.testing.assert_close(rebuilt(x, all_of(x), 1), x)
    off = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
    flat = off * torch.tensor([1.0, 0.0])
    torch.testing.assert_close(rebuilt(off, all_of(off), 1), flat)


def test_as_many_components_as_rows_change_nothing():
    x = drawn(4, 9)
    torch.testing.assert_close(rebuilt(x, all_of(x), 4), x)
    torch.testing.assert_close(rebuilt(x, all_of(x), 32), x)


def test_rows_that_are_not_valid_take_no_part():
    x = drawn(6, 5)
    valid = torch.tensor([True, True, True, True, False, False])
    found = rebuilt(x, valid, 2)
    torch.testing.assert_close(found[:4], rebuilt(x[:4], all_of(x[:4]), 2))
    assert torch.equal(found[4:], x[4:])


@pytest.mark.parametrize("num", [3, 8])
def test_gradients(num):
    x = drawn(num, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda each: rebuilt(each, all_of(each), 2), (x,))


def test_equal_rows_and_equal_lengths_have_finite_gradients():
    """Where singular values are equal, the derivative of singular vectors is infinite."""
    for x in (torch.ones(4, 6), torch.eye(6), torch.zeros(3, 6)):
        leaf = x.clone().requires_grad_()
        rebuilt(leaf, all_of(leaf), 2).square().sum().backward()
        assert torch.isfinite(leaf.grad).all()


def test_half_precision_is_computed_in_single():
    x = drawn(12, 5).to(torch.bfloat16)
    found = rebuilt(x, all_of(x), 2)
    assert found.dtype == torch.bfloat16
    wanted = rebuilt(x.float(), all_of(x), 2)
    torch.testing.assert_close(found.float(), wanted, atol=0.02, rtol=0.02)
