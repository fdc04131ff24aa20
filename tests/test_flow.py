"""Fingerprints tell apart what two machines would compute differently."""

from __future__ import annotations

import pytest
import torch

from glit.flow import make_plan
from glit.recipe import load_recipe


def folder(monkeypatch, *overrides: str, gpu: bool) -> str:
    """Where regions would be kept on a machine with or without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    recipe = load_recipe("lism-mini", overrides=["caption.backend=sidecar", *overrides])
    return make_plan(recipe).folder("propose")


@pytest.mark.parametrize(
    ("overrides", "apart"),
    [
        ((), True),
        (("propose.precision=float32",), True),  # SAM decodes in TF32 on a GPU
        (("propose.precision=float32", "propose.device=cpu"), False),
        (("propose.precision=bfloat16",), False),
    ],
)
def test_sams_regions_of_a_gpu_and_a_cpu_do_not_mix(monkeypatch, overrides, apart):
    here, there = (folder(monkeypatch, *overrides, gpu=gpu) for gpu in (False, True))
    assert (here != there) is apart
