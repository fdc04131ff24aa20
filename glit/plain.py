"""Frozen dataclasses from plain values (JSON, TOML), and back: the one converter of glit.

A value has just the type that its field declares, or it is refused with the keys that lead to it.
A class may keep keys that it does not know (:func:`unknown_keys`), so that what a later version of
glit wrote is still there when a file is written again. A number declares its limits beside it.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar

from glit.errors import closest, cut

T = TypeVar("T")

LIMITS = "limits"
"""Key of a field's metadata: its :class:`Limits`, if it has some."""
_UNKNOWN = "unknown"
_MOST_KEYS = 8
"""Most keys that a message names; a file may be nested without end."""


class MisfitError(ValueError):
    """A plain value that is not what a field holds.

    Args:
        problem: what was found and what was wanted.
        keys: those that lead to the value, the outermost first.
    """

    def __init__(self, problem: str, keys: tuple[str, ...] = ()) -> None:
        self.problem, self.keys = problem, keys
        shown = [repr(cut(key)) for key in keys[:_MOST_KEYS]]
        super().__init__(": ".join([*shown, problem]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The values that a number may have; never NaN or infinity.

    >>> str(Limits(least=1)), str(Limits(above=0, most=1)), str(Limits(least=32, also=0))
    ('>= 1', 'above 0, at most 1', '>= 32, or 0')
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    also: float | None = None
    """A further allowed value, which turns the option off or leaves it to somebody else."""

    def allow(self, value: float) -> bool:
        """Return whether a value is within these limits."""
        inside = self.least <= value <= self.most and self.above < value < self.below
        return value == self.also or inside

    def __str__(self) -> str:
        low, high = self.least, self.most
        if math.isfinite(low) and math.isfinite(high):
            words = [f"{low:g} to {high:g}"]
        else:
            named = (
                (f">= {low:g}", low), (f"above {self.above:g}", self.above),
                (f"at most {high:g}", high), (f"below {self.below:g}", self.below),
            )  # fmt: skip
            words = [text for text, number in named if math.isfinite(number)]
        said = ", ".join(words) or "a finite number"
        return said + ("" if self.also is None else f", or {self.also:g}")


def limited(default: Any = MISSING, **limits: float) -> Any:
    """Declare a number with its :class:`Limits`; without a default it has to be given."""
    return dataclasses.field(default=default, metadata={LIMITS: Limits(**limits)})


def unknown_keys() -> Any:
    """Declare the mapping that takes the keys of a table which are no fields."""
    return dataclasses.field(default_factory=dict, metadata={_UNKNOWN: True})


def check_fields(config: Any) -> None:
    """Check a dataclass, however it was made: numbers, and those of lists, against the limits of
    their fields, and words against the values of a ``Literal``.

    Raises:
        MisfitError: names the first field that does not fit.
    """
    hints, _, _ = _fields(type(config))
    for field in dataclasses.fields(config):
        limits, value = field.metadata.get(LIMITS), getattr(config, field.name)
        if limits is not None:
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            if not all(map(limits.allow, values)):
                raise MisfitError(f"found {value}, want {limits}", (field.name,))
        elif typing.get_origin(hints[field.name]) is Literal:
            _at(field.name, value, hints[field.name])


def from_plain(kind: type[T], values: Any) -> T:
    """Build a dataclass from plain values.

    Raises:
        MisfitError: a key is missing or unknown, a value has another type or is outside the limits
            of its field, or the class itself refuses it.
    """
    if not isinstance(values, dict):
        raise _misfit(values, "a table")
    hints, names, unknown = _fields(kind)
    own = {}
    for key, value in values.items():
        if key in names:
            own[key] = _at(key, value, hints[key])
        elif not unknown:
            raise MisfitError(f"unknown key {cut(key)!r}; {closest(key, names)}")
    if unknown:
        each = typing.get_args(hints[unknown])[1]
        own[unknown] = {k: _at(k, v, each) for k, v in values.items() if k not in names}
    for name, is_needed in names.items():
        if is_needed and name not in own:
            raise MisfitError("is missing", (name,))
    try:
        made = kind(**own)
    except (TypeError, ValueError, OverflowError) as error:
        raise MisfitError(str(error)) from error
    check_fields(made)
    return made


def as_plain(value: Any) -> Any:
    """Plain values of a dataclass, in lists and tables too: what :func:`from_plain` was given.

    A field at its default is left out.
    """
    if dataclasses.is_dataclass(value):
        found: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            each = getattr(value, field.name)
            if field.metadata.get(_UNKNOWN):
                found |= as_plain(each)
            elif each != _default(field):
                found[field.name] = as_plain(each)
        return found
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    return [as_plain(each) for each in value] if isinstance(value, list | tuple) else value


def fitted(value: Any, hint: Any, *, loose: bool = False) -> Any:
    """A plain value as the type that a field declares.

    Args:
        value: of JSON or TOML.
        hint: the type.
        loose: as people write recipes: ``"none"`` is None, and a number may stand for a text.

    Raises:
        MisfitError: it does not fit.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, UnionType):
        if NoneType in inner and (value is None or (loose and value == "none")):
            return None
        return fitted(value, next(each for each in inner if each is not NoneType), loose=loose)
    if origin is Literal:
        if any(value == each and type(value) is type(each) for each in inner):
            return value
        raise MisfitError(f"found {cut(repr(value))}; {closest(str(value), map(str, inner))}")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _misfit(value, "a list")
        hints = inner[:1] * len(value) if inner[-1] is ... else inner
        if len(hints) != len(value):
            raise _misfit(value, f"a list of {len(hints)}")
        return tuple(fitted(*each, loose=loose) for each in zip(value, hints, strict=True))
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _misfit(value, "a table")
        return {key: _at(key, each, inner[1]) for key, each in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, value)
    if isinstance(hint, type) and issubclass(hint, dict):
        if not isinstance(value, dict):
            raise _misfit(value, "a table")
        return hint(value)
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise MisfitError("found a number too large for a float") from error
    if loose and hint is str and type(value) in (int, float):
        return str(value)
    if type(value) is not hint:
        raise _misfit(value, getattr(hint, "__name__", str(hint)))
    return value


def _at(key: str, value: Any, hint: Any) -> Any:
    try:
        return fitted(value, hint)
    except MisfitError as error:
        raise MisfitError(error.problem, (key, *error.keys)) from error


def _misfit(value: Any, wanted: str) -> MisfitError:
    return MisfitError(f"found {cut(repr(value))} ({type(value).__name__}), want {wanted}")


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is MISSING else made()


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], dict[str, bool], str]:
    """The types of a dataclass's fields, whether each has to be given, and the field that takes
    unknown keys."""
    own = dataclasses.fields(kind)
    unknown = next((each.name for each in own if each.metadata.get(_UNKNOWN)), "")
    needed = {each.name: _default(each) is MISSING for each in own if each.name != unknown}
    return typing.get_type_hints(kind), needed, unknown
