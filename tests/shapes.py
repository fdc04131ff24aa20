"""What checks the shapes in glit's signatures while tests run; every other hint is pyright's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from beartype import beartype

_SHAPED = re.compile(r"\b(Float|Int|Bool|UInt8|Pixels|Boxes)\b")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refusing arrays that are not of the shape and type it says."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {
        name: hint for name, hint in hints.items() if _SHAPED.search(str(hint))
    }
    return beartype(function) if function.__annotations__ else function
