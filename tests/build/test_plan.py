"""Fingerprints tell apart what two machines would compute differently."""

from __future__ import annotations

import pytest
import torch

from glit.build.plan import make_plan
from glit.recipe import load_recipe


def folder(monkeypatch, recipe: str, *overrides: str, gpu: bool) -> str:
    """Where regions would be kept on a machine with or without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    settings = ["caption.backend=sidecar", *overrides]
    return make_plan(load_recipe(recipe, overrides=settings)).folder("propose")


@pytest.mark.parametrize(
    ("recipe", "overrides", "apart"),
    [
        ("mini", (), True),  # bfloat16 on a GPU
        ("mini", ("propose.device=cpu",), False),
        ("mini", ("propose.precision=float32",), False),
        ("lism-mini", (), False),  # SAM computes in float32 everywhere
    ],
)
def test_regions_of_two_precisions_do_not_mix(monkeypatch, recipe, overrides, apart):
    here, there = (folder(monkeypatch, recipe, *overrides, gpu=gpu) for gpu in (False, True))
    assert (here != there) is apart
