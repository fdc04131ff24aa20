"""The shape checks that run in all tests do catch what they are there for."""

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from glit.data.geometry import areas
from glit.training.losses import contrastive


def test_an_array_of_another_shape_is_refused():
    assert areas(np.array([[0.0, 0.0, 2.0, 3.0]])).tolist() == [6.0]
    with pytest.raises(TypeCheckError):
        areas(np.zeros((2, 5)))


def test_two_arrays_whose_shapes_do_not_fit_are_refused():
    with pytest.raises(TypeCheckError):
        contrastive(torch.zeros(2, 4), torch.zeros(3, 4), torch.tensor(1.0), torch.ones(2).bool())
