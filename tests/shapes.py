"""What checks the shapes in glit's signatures while tests run; every other hint is pyright's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import beartype

_SHAPED = re.compile(r"\b(Float|Int|Bool|UInt8|Pixels|Boxes)\b")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refusing arrays that are not of the shape and type it says."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {
        name: hint for name, hint in hints.items() if _SHAPED.search(str(hint))
    }
    return beartype(function) if function.__annotations__ else function


def check_from_here_on() -> None:
    """Check what is imported later. What names no shape stays as it is: to check all costs a tenth
    of every build."""
    checked = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker: str) -> Callable[[Any], Any]:
        decorate = checked(typechecker=typechecker)
        return lambda item: decorate(item) if _names_a_shape(item) else item

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook("glit", f"{__name__}.check")


def _names_a_shape(item: Any) -> bool:
    hints = [vars(each).get("__annotations__", {}) for each in getattr(item, "__mro__", ())]
    hints = hints or [item.__annotations__]
    return any(_SHAPED.search(str(hint)) for each in hints for hint in each.values())
