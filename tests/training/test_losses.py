"""Contrastive and token similarity losses against cases worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from glit.training.losses import contrastive, mean_cosine, sigmoid_loss, tsl_diagonal, tsl_full

ONE = torch.tensor(1.0)


def unit(*angles_degrees: float) -> torch.Tensor:
    return torch.tensor(
        [[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in angles_degrees]
    )


def test_a_pair_of_weight_zero_is_still_a_negative_of_others() -> None:
    """Two orthogonal pairs, the second of no weight: the first one's rows alone, ln(1 + e^-1)."""
    image, text = torch.eye(2), torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    valid = torch.tensor([True, True])
    scale = torch.tensor(1.0)
    first = contrastive(image, text, scale, valid, torch.tensor([1.0, 0.0]))
    row = math.log(1 + math.exp(0.6 - 1))  # image 0 against both texts
    column = math.log(1 + math.exp(0.0 - 1))  # text 0 against both images
    assert float(first) == pytest.approx((row + column) / 2, rel=1e-6)
    even = contrastive(image, text, scale, valid, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(even, contrastive(image, text, scale, valid))


def test_an_empty_batch_gives_zero_and_gradients() -> None:
    image = torch.zeros(0, 2, requires_grad=True)
    scale = torch.tensor(5.0, requires_grad=True)
    loss = contrastive(image, torch.zeros(0, 2), scale, torch.zeros(0).bool())
    loss.backward()
    assert loss.item() == 0
    assert scale.grad is not None and scale.grad.item() == 0


def test_mean_cosine_of_the_valid_rows() -> None:
    valid = torch.tensor([True, False])
    assert mean_cosine(unit(60, 10), unit(0, 90), valid).item() == pytest.approx(0.5)
    assert mean_cosine(unit(60), unit(0), torch.tensor([False])).item() == 0


@pytest.mark.parametrize("chosen", [[], [2], [0, 3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("name", ["contrastive", "sigmoid", "diagonal", "full"])
def test_to_weigh_with_zero_is_to_leave_out(name: str, chosen: list[int]) -> None:
    """The loss and its gradients; those of what does not count are zero."""
    losses = {
        "contrastive": lambda a, b, valid: contrastive(a, b, ONE * 7, valid),
        "sigmoid": lambda a, b, valid: sigmoid_loss(a, b, ONE * 7, -ONE, valid),
        "diagonal": lambda a, b, valid: tsl_diagonal(a, b, valid.double()),
        "full": lambda a, b, valid: tsl_full(a, b, valid.double()),
    }
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 5, 4, dtype=torch.float64, generator=generator)
    weighed, left = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    valid = torch.zeros(5, dtype=torch.bool)
    valid[chosen] = True
    found = losses[name](*weighed, valid)
    wanted = losses[name](left[0, chosen], left[1, chosen], valid[chosen])
    torch.testing.assert_close(found, wanted)
    found.backward()
    wanted.backward()
    torch.testing.assert_close(weighed.grad, left.grad)


@pytest.mark.parametrize("loss", [tsl_diagonal, tsl_full])
def test_gradients_of_tsl(loss) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    b = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (a, b, torch.tensor([1.0, 0.5, 2.0]).double()))


def test_gradients_of_the_contrastive_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    b = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(contrastive, (a, b, scale, torch.ones(3).bool()))
