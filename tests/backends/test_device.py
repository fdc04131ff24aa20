"""Devices and dtypes by their names."""

from __future__ import annotations

import pytest
import torch

from glit.backends.device import best_device, pick_device, torch_dtype
from glit.errors import UserError


@pytest.fixture
def only(monkeypatch):
    """``only("cuda")``: this machine has that device, and a CPU."""

    def set_device(name: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: name == "cuda")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: name == "mps")

    return set_device


@pytest.mark.parametrize("name", ["cuda", "mps", "cpu"])
def test_auto_is_the_fastest_device_here(only, name):
    only(name)
    assert best_device() == pick_device("auto").type == name
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize(("here", "wanted"), [("cpu", "cuda"), ("mps", "cuda"), ("cuda", "mps")])
def test_a_device_that_is_not_here_is_refused(only, here, wanted):
    only(here)
    with pytest.raises(UserError, match=f"device = '{wanted}': this machine has none"):
        pick_device(wanted)


def test_dtypes_by_name():
    assert torch_dtype("bfloat16") is torch.bfloat16
    assert torch_dtype("float32") is torch.float32
