"""Checks of the keys of ``[train]``, those of objectives among them."""

from __future__ import annotations

import math
from typing import Any, get_args

from glit.errors import RecipeError


def check_choice(table: Any, name: str, kind: Any) -> None:
    """Refuse a key of ``[train]`` that is none of a ``Literal``'s values."""
    value, allowed = getattr(table, name), get_args(kind)
    if value not in allowed:
        raise RecipeError(f"train.{name} = {value!r}: wanted one of {', '.join(allowed)}")


def check_least(table: Any, low: float, *names: str) -> None:
    """Refuse keys of ``[train]`` that are lower than this or not finite."""
    for name in names:
        value = getattr(table, name)
        if not (math.isfinite(value) and value >= low):
            raise RecipeError(f"train.{name} = {value}: wanted {low} or more")


def check_positive(table: Any, name: str, hint: str = "") -> None:
    """Refuse a key of ``[train]`` that is not above 0, or not finite."""
    value = getattr(table, name)
    if not (math.isfinite(value) and value > 0):
        raise RecipeError(f"train.{name} = {value}: wanted a positive number{hint}")
