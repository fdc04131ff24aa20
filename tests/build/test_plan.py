"""Fingerprints tell apart what two machines would compute differently."""

from __future__ import annotations

import pytest

from glit.build.plan import make_plan
from glit.errors import RecipeError
from glit.recipe import load_recipe


def folder(recipe: str, *overrides: str, device: str) -> str:
    """Where regions would be kept by workers of this device."""
    settings = ["caption.backend=sidecar", *overrides]
    return make_plan(load_recipe(recipe, overrides=settings), device=device).folder("propose")


@pytest.mark.parametrize(
    ("recipe", "overrides", "apart"),
    [
        ("mini", (), True),  # bfloat16 on a GPU
        ("mini", ("propose.device=cpu",), False),
        ("mini", ("propose.precision=float32",), False),
        ("lism-mini", (), False),  # SAM computes in float32 everywhere
    ],
)
def test_regions_of_two_precisions_do_not_mix(recipe, overrides, apart):
    here, there = (folder(recipe, *overrides, device=device) for device in ("cpu", "cuda"))
    assert (here != there) is apart


@pytest.mark.parametrize("ignored", ["propose.precision=bfloat16", "propose.compile=true"])
def test_what_exact_masks_would_ignore_is_refused(ignored):
    folder("lism-mini", ignored, device="cpu")
    folder("lism-mini", "propose.exact_masks=true", "propose.precision=float32", device="cpu")
    with pytest.raises(RecipeError, match="leave one of the two out"):
        folder("lism-mini", "propose.exact_masks=true", ignored, device="cpu")
