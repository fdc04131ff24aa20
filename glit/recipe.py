"""Recipes: TOML files turned into frozen dataclasses, with errors that help.

A recipe has one table per stage, in the order of the flow. ``base = "flism"`` starts from
another recipe; ``--set match.model=...`` changes single keys. Nobody reads a raw dict past
:func:`load_recipe`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from glit.config import (
    CaptionConfig,
    IngestConfig,
    MatchConfig,
    PackConfig,
    ProposeConfig,
    SplitConfig,
)
from glit.errors import RecipeError
from glit.resources import builtin_recipes

T = TypeVar("T")

BUILD_TABLES: dict[str, type] = {
    "ingest": IngestConfig,
    "caption": CaptionConfig,
    "split": SplitConfig,
    "propose": ProposeConfig,
    "match": MatchConfig,
    "pack": PackConfig,
}
LEARN_TABLES: dict[str, str] = {
    "train": "glit.train.config:TrainConfig",
    "evaluate": "glit.evaluate.config:EvaluateConfig",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what a build produces."""

    name: str
    about: str = ""
    ingest: IngestConfig = field(default_factory=IngestConfig)
    caption: CaptionConfig = field(default_factory=CaptionConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    propose: ProposeConfig = field(default_factory=ProposeConfig)
    match: MatchConfig = field(default_factory=MatchConfig)
    pack: PackConfig = field(default_factory=PackConfig)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return dataclasses.asdict(self)


def load_recipe(name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> Recipe:
    """The build part of a recipe.

    Args:
        name_or_path: a built-in recipe's name or a TOML file's path.
        overrides: ``table.key=value`` strings; values are read as TOML, else as text.

    Raises:
        RecipeError: unknown recipe, table or key; a value of the wrong type.
    """
    tables = read_tables(name_or_path, overrides=overrides)
    return recipe_from_dict({"about": "", **tables})


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe that :meth:`Recipe.as_dict` gave.

    Raises:
        RecipeError: the values are of another version of glit.
    """
    parts = {
        name: build_dataclass(kind, values.get(name, {}), where=f"[{name}]")
        for name, kind in BUILD_TABLES.items()
    }
    return Recipe(name=values["name"], about=values["about"], **parts)


def load_table(table: str, name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> Any:
    """The ``train`` or ``evaluate`` table of a recipe as its dataclass."""
    module, _, class_name = LEARN_TABLES[table].partition(":")
    kind = getattr(importlib.import_module(module), class_name)
    tables = read_tables(name_or_path, overrides=overrides)
    return build_dataclass(kind, tables.get(table, {}), where=f"[{table}]")


def read_tables(name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> dict[str, Any]:
    """A recipe's raw tables with its bases merged in and overrides applied."""
    tables = _read_with_bases(name_or_path, seen=())
    known = [*BUILD_TABLES, *LEARN_TABLES]
    for key in tables:
        if key not in ("name", "about", *known):
            raise RecipeError(_unknown("recipe", f"table [{key}]", key, known))
        if key in known and not isinstance(tables[key], dict):
            raise RecipeError(f"recipe: {key} = {tables[key]!r}, want a table: [{key}]")
    for override in overrides:
        _apply_override(tables, override, known)
    return tables


def _read_with_bases(name_or_path: str, *, seen: tuple[str, ...]) -> dict[str, Any]:
    path = _find(name_or_path)
    if str(path) in seen:
        raise RecipeError(f"recipe {name_or_path}: 'base' goes round in a circle")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path}: not valid TOML ({error})") from error
    base = raw.pop("base", None)
    tables: dict[str, Any] = {}
    if base is not None:
        beside = path.parent / str(base)
        tables = _read_with_bases(
            str(beside) if beside.is_file() else str(base), seen=(*seen, str(path))
        )
    for key, value in raw.items():
        if isinstance(value, dict):
            tables[key] = {**tables.get(key, {}), **value}
        else:
            tables[key] = value
    tables["name"] = path.stem
    return tables


def _find(name_or_path: str) -> Path:
    recipes = builtin_recipes()
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    close = difflib.get_close_matches(name_or_path, recipes, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"built in: {', '.join(recipes)}"
    raise RecipeError(f"no recipe named {name_or_path!r} and no such file; {hint}")


def _apply_override(tables: dict[str, Any], override: str, known: list[str]) -> None:
    dotted, equals, text = override.partition("=")
    table, dot, key = dotted.strip().partition(".")
    if not (equals and dot and key):
        raise RecipeError(f"--set {override!r}: want table.key=value, as in match.batch_size=64")
    if table not in known:
        raise RecipeError(_unknown("--set", f"table {table!r}", table, known))
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    tables.setdefault(table, {})[key] = value


def build_dataclass(kind: type[T], values: dict[str, Any], *, where: str) -> T:
    """A config dataclass from plain values; unknown keys fail and name the nearest known one.

    Raises:
        RecipeError: unknown key, wrong type, or a value the dataclass itself refuses.
    """
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, kind))}
    hints = typing.get_type_hints(kind)
    checked = {}
    for key, value in values.items():
        if key not in fields:
            raise RecipeError(_unknown(where, f"key {key!r}", key, list(fields)))
        checked[key] = _coerce(value, hints[key], where=f"{where} {key}")
    try:
        return kind(**checked)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {error}") from error


def _coerce(value: Any, hint: Any, *, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        if value in choices and type(value) is type(choices[choices.index(value)]):
            return value
        close = difflib.get_close_matches(str(value), [str(c) for c in choices], n=1)
        nearest = f"; did you mean {close[0]!r}?" if close else ""
        wanted = ", ".join(repr(c) for c in choices)
        raise RecipeError(f"{where}: found {value!r}, want one of {wanted}{nearest}")
    if origin in (typing.Union, types.UnionType):
        if value in (None, "none") and type(None) in typing.get_args(hint):
            return None
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _coerce(value, inner[0], where=where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{where}: found {value!r}, want a list")
        return tuple(_coerce(item, typing.get_args(hint)[0], where=where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (type(value) is hint):
        return value
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    name = getattr(hint, "__name__", str(hint))
    raise RecipeError(f"{where}: found {value!r} ({type(value).__name__}), want {name}")


def _unknown(where: str, what: str, key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"{where}: unknown {what}; {hint}"
