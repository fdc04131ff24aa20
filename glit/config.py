"""What configuration tables are made of; each table lies with the stage or part that it configures.

A table is a frozen dataclass whose fields are its keys; the string under a field is its
documentation. Nothing here imports a model library, so a recipe can be read anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from glit.errors import RecipeError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]

_SPEED, _ADDED = "speed", "added"


def speed_only(default: Any) -> Any:
    """A field that changes how fast results come, not what they are."""
    return dataclasses.field(default=default, metadata={_SPEED: True})


def added(default: Any) -> Any:
    """A field that an earlier glit did not have, whose default does what was done before.

    It enters no fingerprint while it stands at its default, so a new option redoes nobody's work.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A key whose value brings further keys into the table: those of a backend, a rule, a loss."""

    key: str
    """Name of the field that chooses."""
    options: Callable[[], Mapping[str, type | None]]
    """For each value the dataclass of its further keys, None where it has none. The chosen one's
    instance is the table's field ``options``."""


def identity(config: Any) -> dict[str, Any]:
    """The keys of a table that decide its results; what a fingerprint hashes."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "options":
            found |= identity(value) if value is not None else {}
        elif not field.metadata.get(_SPEED) and not (
            field.metadata.get(_ADDED) and value == field.default
        ):
            found[field.name] = value
    return found


def as_table(config: Any) -> dict[str, Any]:
    """All keys of a table as plain values, the chosen options among them."""
    own = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    options = own.pop("options", None)
    return own if options is None else own | as_table(options)


def need(condition: bool, message: str) -> None:
    """Refuse a value.

    Raises:
        RecipeError: with the message, if the condition does not hold.
    """
    if not condition:
        raise RecipeError(message)
