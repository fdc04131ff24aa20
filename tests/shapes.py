"""What checks the shapes in glit's signatures while tests run; every other hint is pyright's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beartype import beartype
from jaxtyping import install_import_hook

_GLIT = Path(__file__).parents[1] / "glit"
_SHAPED = re.compile(r"\b(Float|Int|Bool|UInt8|Pixels|Boxes)\b")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refusing arrays that are not of the shape and type it says."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {
        name: hint for name, hint in hints.items() if _SHAPED.search(str(hint))
    }
    return beartype(function) if function.__annotations__ else function


def check_from_here_on() -> None:
    """Check what is imported later, of the modules that name a shape: of all, it costs a tenth."""
    install_import_hook(
        [
            ".".join(path.relative_to(_GLIT.parent).with_suffix("").parts)
            for path in _GLIT.rglob("*.py")
            if _SHAPED.search(path.read_text(encoding="utf-8"))
        ],
        f"{__name__}.check",
    )
