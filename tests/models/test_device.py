"""Devices and dtypes by their names; bfloat16 where the device has instructions for it."""

from __future__ import annotations

import warnings

import cpu_only
import pytest
import torch

from glit.errors import UserError
from glit.models.device import (
    best_device,
    has_bfloat16,
    lacks_bfloat16,
    pick_device,
    torch_dtype,
    warn_if_slow,
)
from glit.training.setup import mixed_precision


@pytest.fixture
def processor(monkeypatch):
    """Pretend to have a processor of these instructions."""

    def has(**capabilities: bool) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)

    return has


@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"bf16": True}, True),
        ({}, False),
    ],
)
def test_instructions_of_the_processor(processor, capabilities, wanted):
    processor(**capabilities)
    assert has_bfloat16("cpu") is wanted


def test_a_torch_that_cannot_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not has_bfloat16("cpu")


def test_a_precision_that_is_only_emulated_is_warned_of(processor):
    processor(avx512_bf16=False)
    with pytest.warns(UserWarning, match="train.precision = 'bf16': this processor has no"):
        assert mixed_precision("bf16", "cpu") == "bf16"
    with pytest.warns(UserWarning, match="score.precision = 'bfloat16'"):
        warn_if_slow("bfloat16", "cpu", where="score.precision")


def test_nothing_to_warn_of(processor):
    processor(avx512_bf16=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mixed_precision("bf16", "cpu") == "bf16"
        processor(avx512_bf16=False)
        assert mixed_precision("no", "cpu") == "no"
        assert mixed_precision("auto", "cpu") == "no"
        warn_if_slow("bfloat16", "cuda", where="score.precision")


@pytest.mark.parametrize(("supported", "wanted"), [(True, "bf16"), (False, "no")])
def test_training_on_a_gpu_is_bf16_where_it_has_it(monkeypatch, supported, wanted):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert mixed_precision("auto", "cuda") == wanted


@pytest.fixture
def only(monkeypatch):
    """``only("cuda")``: this machine has that device, and a CPU."""

    def set_device(name: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: name == "cuda")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: name == "mps")

    with cpu_only.as_it_is():
        yield set_device


@pytest.mark.parametrize(
    ("here", "native", "asked", "wanted"),
    [
        ("cuda", False, "cuda", True),
        ("cuda", True, "cuda", False),
        ("cuda", False, "cpu", False),
        ("cpu", False, "cuda", False),
        ("cpu", False, "cpu", False),
        ("mps", False, "mps", False),
    ],
)
def test_a_gpu_that_is_here_and_only_emulates_bfloat16_lacks_it(
    only, processor, monkeypatch, here, native, asked, wanted
):
    only(here)
    processor(avx512_bf16=False)
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or native,
    )
    assert lacks_bfloat16(asked) is wanted


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
