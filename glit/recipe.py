"""Recipes: TOML files turned into frozen dataclasses, with errors that help.

A recipe has one table per stage, in the order of the flow. ``base = "flism"`` starts from
another recipe; ``--set score.model=...`` changes single keys. Nobody reads a raw dict past
:func:`load_recipe`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import tomllib
import types
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from glit.config import Choice
from glit.errors import RecipeError, closest
from glit.resources import builtin_recipes
from glit.stages import FLOW
from glit.stages.plan import Recipe

T = TypeVar("T")

LEARN_TABLES: dict[str, str] = {
    "train": "glit.train.config:TrainConfig",
    "evaluate": "glit.evaluate.config:EvaluateConfig",
}
_RENAMED = {"match": "[score] (model, batch_size, device, precision) and [pair] (rule)"}
"""Tables of earlier versions, and what took their place."""


def load_recipe(name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> Recipe:
    """The build part of a recipe.

    Args:
        name_or_path: a built-in recipe's name or a TOML file's path.
        overrides: ``table.key=value`` strings; values are read as TOML, else as text.

    Raises:
        RecipeError: unknown recipe, table or key; a value of the wrong type.
    """
    _refuse_others(overrides, [step.name for step in FLOW], what="a build")
    with naming_file(name_or_path):
        tables = read_tables(name_or_path, overrides=overrides)
        return recipe_from_dict({"about": "", **tables})


@contextlib.contextmanager
def naming_file(name_or_path: str | None) -> Iterator[None]:
    """Errors of a recipe that is a file say which.

    Raises:
        RecipeError: with the file's path before what it said, unless it names that or ``--set``.
    """
    try:
        yield
    except RecipeError as error:
        said = str(error)
        is_file = name_or_path is not None and name_or_path not in builtin_recipes()
        if not is_file or str(name_or_path) in said or said.startswith("--set"):
            raise
        raise RecipeError(f"{name_or_path}: {said.removeprefix('recipe: ')}") from error


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe that :meth:`Recipe.as_dict` gave.

    Raises:
        RecipeError: the values are of another version of glit.
    """
    tables = {
        step.name: build_dataclass(step.config, values.get(step.name, {}), where=f"[{step.name}]")
        for step in FLOW
    }
    return Recipe(name=values["name"], about=values["about"], tables=tables)


def load_table(table: str, name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> Any:
    """The ``train`` or ``evaluate`` table of a recipe as its dataclass.

    Raises: as :func:`load_recipe`.
    """
    _refuse_others(overrides, [table], what=f"glit {table}".replace("evaluate", "eval"))
    module, _, class_name = LEARN_TABLES[table].partition(":")
    kind = getattr(importlib.import_module(module), class_name)
    with naming_file(name_or_path):
        tables = read_tables(name_or_path, overrides=overrides)
        return build_dataclass(kind, tables.get(table, {}), where=f"[{table}]")


def _refuse_others(overrides: typing.Sequence[str], read: list[str], *, what: str) -> None:
    """Refuse settings of tables that are known, but not read: they would change nothing."""
    for override in overrides:
        table = override.partition(".")[0].strip()
        if table in known_tables() and table not in read:
            raise RecipeError(
                f"--set {override!r}: {what} does not read [{table}] (it reads {', '.join(read)})"
            )


def known_tables() -> list[str]:
    """The tables that a recipe may hold."""
    return [*(step.name for step in FLOW), *LEARN_TABLES]


def read_tables(name_or_path: str, *, overrides: typing.Sequence[str] = ()) -> dict[str, Any]:
    """A recipe's raw tables with its bases merged in and overrides applied."""
    tables = _read_with_bases(name_or_path, seen=())
    known = known_tables()
    for key in tables:
        if key in _RENAMED:
            raise RecipeError(f"recipe: the table [{key}] is now {_RENAMED[key]}")
        if key not in ("name", "about", *known):
            raise RecipeError(f"recipe: unknown table [{key}]; {closest(key, known)}")
        if key in known and not isinstance(tables[key], dict):
            raise RecipeError(f"recipe: {key} = {tables[key]!r}, want a table: [{key}]")
    for override in overrides:
        _apply_override(tables, override, known)
    return tables


def overridden_tables(overrides: typing.Sequence[str]) -> dict[str, Any]:
    """The raw tables that ``table.key=value`` strings make by themselves."""
    tables: dict[str, Any] = {}
    for override in overrides:
        _apply_override(tables, override, known_tables())
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
    hint = closest(name_or_path, recipes)
    raise RecipeError(f"no recipe named {name_or_path!r} and no such file; {hint}")


def _apply_override(tables: dict[str, Any], override: str, known: list[str]) -> None:
    dotted, equals, text = override.partition("=")
    table, dot, key = dotted.strip().partition(".")
    if not (equals and dot and key):
        raise RecipeError(f"--set {override!r}: want table.key=value, as in score.batch_size=64")
    if table in _RENAMED:
        raise RecipeError(f"--set {override}: the table [{table}] is now {_RENAMED[table]}")
    if table not in known:
        raise RecipeError(f"--set: unknown table {table!r}; {closest(table, known)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    tables.setdefault(table, {})[key] = value


def build_dataclass(kind: type[T], values: dict[str, Any], *, where: str) -> T:
    """A table's dataclass from plain values; unknown keys fail and name the nearest known one.

    Keys that belong to what another key chooses (a backend, a rule, an objective) go into the
    dataclass of that choice; a key that only another choice has is ignored with a warning.

    Raises:
        RecipeError: unknown key, wrong type, or a value the dataclass itself refuses.
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
    checked = {
        key: value if key == "options" else _coerce(value, hints[key], where=f"{where} {key}")
        for key, value in own.items()
    }
    try:
        return kind(**checked)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {error}") from error


def _chosen(choice: Choice, name: Any, rest: dict[str, Any], *, where: str, kind: type) -> Any:
    """The options of what was chosen, None where it has none or all stand at their defaults."""
    known = choice.options()
    if name not in known:
        raise RecipeError(f"{where} {choice.key}: found {name!r}; {closest(str(name), known)}")
    chosen = known[name]
    others = {key for each in known.values() if each is not None for key in _keys(each)}
    mine = _keys(chosen) if chosen is not None else []
    for key in rest:
        if key not in mine and key not in others:
            everything = [*_keys(kind), *mine, *sorted(others)]
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


def _coerce(value: Any, hint: Any, *, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        if value in choices and type(value) is type(choices[choices.index(value)]):
            return value
        hint = closest(str(value), map(str, choices))
        raise RecipeError(f"{where}: found {value!r}; {hint}")
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
        try:
            return float(value)
        except OverflowError as error:
            raise RecipeError(f"{where}: found a number too large for a float") from error
    if isinstance(hint, type) and (type(value) is hint):
        return value
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    name = getattr(hint, "__name__", str(hint))
    raise RecipeError(f"{where}: found {value!r} ({type(value).__name__}), want {name}")
