"""bfloat16 is chosen where the device has instructions for it, and nowhere else."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from glit.backends.device import has_bfloat16, warn_if_slow
from glit.train.setup import mixed_precision
from tools.mini.loop import TrainSettings, train


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


@pytest.mark.parametrize(("bfloat16", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_mini_trainers_multiply_in_what_the_processor_has(
    processor, tmp_path, bfloat16, wanted
):
    processor(avx512_bf16=bfloat16)
    seen = set()

    def loss(module, rng, step):
        x = module(torch.tensor(rng.normal(size=(2, 4)), dtype=torch.float32))
        seen.add(x.dtype)
        return x.float().square().mean(), {}

    train(nn.Linear(4, 1), loss, TrainSettings(steps=2, lr=0.1), tmp_path, lambda _: None)
    assert seen == {wanted}


def test_a_precision_that_is_only_emulated_is_warned_of(processor):
    processor(avx512_bf16=False)
    with pytest.warns(UserWarning, match="train.precision = 'bf16': this processor has no"):
        assert mixed_precision("bf16", "cpu") == "bf16"
    processor(avx512_bf16=True)
    with pytest.warns(UserWarning, match="score.precision = 'float16'"):
        warn_if_slow("float16", "cpu", where="score.precision")


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
