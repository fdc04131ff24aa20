"""Configuration tables: frozen dataclasses with one field per key, built from plain values.

Each table lies with the stage or part that it configures; the string under a field is its
documentation. Nothing here imports a model library, so a recipe can be read anywhere.
"""

from __future__ import annotations

import dataclasses
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from glit.errors import RecipeError, closest
from glit.plain import LIMITS, Limits, MisfitError, check_fields, fitted

T = TypeVar("T")
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16", "float16", "int8"]

_SPEED, _FILE = "speed", "file"


class RecipeTable:
    """A table of a recipe, whose numbers and words are checked against what their fields allow."""

    __slots__ = ()
    table: ClassVar[str]
    """Its name, for messages."""

    def __post_init__(self) -> None:
        _check_fields(self, f"[{self.table}]")
        self.check()

    def check(self) -> None:
        """Check what concerns several keys.

        Raises:
            RecipeError: names the keys.
        """


class Fields(dict[str, Any]):
    """A table within a table, with keys of the user's own; it is not changed once it is made."""

    def __hash__(self) -> int:  # type: ignore[override] - a frozen dataclass that holds one is hashed
        return hash(repr(sorted(self.items())))


def speed_only(default: Any, **limits: float) -> Any:
    """Declare a field that changes speed but not results; fingerprints ignore it.

    Args:
        default: of the field.
        limits: of a number, as of :class:`Limits`.
    """
    metadata: dict[str, Any] = {_SPEED: True}
    if limits:
        metadata[LIMITS] = Limits(**limits)
    return dataclasses.field(default=default, metadata=metadata)


def file_name(default: Any) -> Any:
    """Declare a field that names files: the step's ``identity`` has what is in them, and
    fingerprints ignore where they are."""
    return dataclasses.field(default=default, metadata={_FILE: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A key whose value adds keys to the table: those of a backend, a rule, a loss."""

    key: str
    """Name of the field that chooses."""
    options: Callable[[], Mapping[str, type | None]]
    """For each value the dataclass of its further keys, None where it has none. The chosen one's
    instance is the table's field ``options``."""


def is_enabled(config: Any) -> bool:
    """Return whether a table turns its step on; one without a key ``enabled`` always does."""
    return getattr(config, "enabled", True)


def on_by_default(config: Any) -> bool:
    """Return whether the step is on in a recipe that does not set ``enabled``."""
    return all(f.default for f in dataclasses.fields(config) if f.name == "enabled")


def enabled(tables: Mapping[str, Any]) -> list[str]:
    """The names of the steps that a recipe's tables turn on, in their order.

    A table whose class has ``follows`` is off where the table of that name is.
    """
    return [
        name
        for name, table in tables.items()
        if is_enabled(table) and is_enabled(tables.get(getattr(table, "follows", ""), table))
    ]


def identity(config: Any) -> dict[str, Any]:
    """The keys of a table that determine its results; fingerprints hash them."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "options":
            found |= identity(value) if value is not None else {}
        elif not (field.metadata.get(_SPEED) or field.metadata.get(_FILE)):
            found[field.name] = value
    return found


def as_table(config: Any) -> dict[str, Any]:
    """All keys of a table as plain values, chosen options included."""
    own = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    options = own.pop("options", None)
    return own if options is None else own | as_table(options)


def require_value(condition: bool, message: str) -> None:
    """Raise a RecipeError unless a condition holds.

    Raises:
        RecipeError: with the message, if the condition does not hold.
    """
    if not condition:
        raise RecipeError(message)


def build_dataclass(kind: type[T], values: dict[str, Any], *, where: str) -> T:
    """Build a table's dataclass from plain values; an unknown key fails and names the nearest one.

    Keys that belong to what another key chooses (a backend, a rule, an objective) go into the
    dataclass of that choice; a key that only another choice has is ignored with a warning.

    Raises:
        RecipeError: unknown key, wrong type, or a value that its field or the dataclass refuses.
    """
    choice: Choice | None = getattr(kind, "choice", None)
    own = {name: value for name, value in values.items() if name in _keys(kind)}
    rest = {name: value for name, value in values.items() if name not in own}
    if choice is not None:
        default = next(f.default for f in dataclasses.fields(_any(kind)) if f.name == choice.key)
        own["options"] = _chosen(choice, own.get(choice.key, default), rest, where=where, kind=kind)
    elif rest:
        key = next(iter(rest))
        raise RecipeError(f"{where}: unknown key {key!r}; {closest(key, _keys(kind))}")
    hints = typing.get_type_hints(kind)
    for key, value in own.items():
        try:
            own[key] = value if key == "options" else fitted(value, hints[key], loose=True)
        except MisfitError as error:
            raise RecipeError(f"{where} {key}: {error}") from error
    try:
        made = kind(**own)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {error}") from error
    _check_fields(made, where)
    return made


def _check_fields(table: Any, where: str) -> None:
    """Check the values of a table against what its fields allow.

    Raises:
        RecipeError: names the first key that does not fit.
    """
    try:
        check_fields(table)
    except MisfitError as error:
        raise RecipeError(f"{where} {error.keys[0]}: {error.problem}") from error


def _chosen(choice: Choice, name: Any, rest: dict[str, Any], *, where: str, kind: type) -> Any:
    """The options of what was chosen, None where it has none or all stand at their defaults."""
    known = choice.options()
    if not isinstance(name, str) or name not in known:
        raise RecipeError(f"{where} {choice.key}: found {name!r}; {closest(str(name), known)}")
    chosen = known[name]
    others = {key for each in known.values() if each is not None for key in _keys(each)}
    mine = _keys(chosen) if chosen is not None else []
    for key in rest:
        if key not in mine and key not in others:
            everything = [*_keys(kind), *mine, *sorted(others - {*mine})]
            raise RecipeError(f"{where}: unknown key {key!r}; {closest(key, everything)}")
    ignored = [key for key in rest if key not in mine]
    if ignored:
        warnings.warn(
            f"{where} {', '.join(ignored)}: ignored, {choice.key} = {name!r} does not use it",
            stacklevel=2,
        )
    given = {key: value for key, value in rest.items() if key in mine}
    if chosen is None or not given:
        return None
    built = build_dataclass(chosen, given, where=where)
    default = all(getattr(built, f.name) == f.default for f in dataclasses.fields(_any(chosen)))
    return None if default else built


def _keys(kind: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.init and f.name != "options"]


def _any(kind: Any) -> Any:
    return kind
