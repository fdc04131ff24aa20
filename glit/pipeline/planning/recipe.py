"""Recipes of builds, and the tables of training and evaluation that recipes hold besides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from glit.errors import RecipeError
from glit.recipes import plugins, toml_tables
from glit.recipes.config import RecipeTable, build_dataclass, enabled, on_by_default
from glit.recipes.toml_tables import naming_file
from glit.stages import all_steps
from glit.stages.base import parts_of
from glit.stages.plan import Recipe

T = TypeVar("T", bound=RecipeTable)

LEARN_TABLES = ("train", "evaluate")
"""The tables of a recipe that are not for a build."""


def load_recipe(name_or_path: str, *, overrides: Sequence[str] = ()) -> Recipe:
    """Load the build part of a recipe.

    Args:
        name_or_path: a built-in recipe's name or a TOML file's path.
        overrides: ``table.key=value`` strings; values are read as TOML, else as text.

    Raises:
        RecipeError: unknown recipe, table or key; a value of the wrong type.
    """
    with naming_file(name_or_path):
        tables = read_tables(name_or_path, overrides=overrides)
        steps = [step.name for step in all_steps()]
        toml_tables.refuse_other_tables(overrides, steps, reader="a build", known=known_tables())
        recipe = recipe_from_dict({"about": "", **tables})
    _refuse_ignored(overrides, tables, recipe)
    return recipe


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe that :meth:`Recipe.as_dict` gave.

    Raises:
        RecipeError: the values are of another version of glit.
        MissingPluginError: parts of it are of a plugin that is not loaded.
    """
    plugins.require_loaded(values.get("plugins", ()), wanted_by=f"the recipe {values['name']!r}")
    tables = {
        step.name: build_dataclass(step.config, values.get(step.name, {}), where=f"[{step.name}]")
        for step in all_steps()
    }
    return Recipe(
        name=values["name"], about=values["about"], tables=tables, plugins=_plugins_of(tables)
    )


def _plugins_of(tables: dict[str, Any]) -> tuple[plugins.Plugin, ...]:
    """The plugins whose parts a recipe uses."""
    steps = {step.name: step for step in all_steps()}
    found = [each for name in enabled(tables) for each in parts_of(steps[name], tables[name])]
    named = {each.name: each for part in found if (each := plugins.plugin_of(part)) is not None}
    return tuple(named.values())


def recipes_differ(before: dict[str, Any], now: Recipe) -> str:
    """The keys of tables in which a recipe is not the one that a build noted; empty for none.

    As in ``split.language = 'de' (there: 'en')``; empty too if this glit cannot read the recipe.
    """
    try:
        both = (recipe_from_dict(before).as_dict(), now.as_dict())
        there, here = (toml_tables.with_files(each, os.path.basename) for each in both)
    except (RecipeError, KeyError):
        return ""
    tables = [name for name in here | there if name not in ("name", "about")]
    pairs = [(name, here.get(name, {}), there.get(name, {})) for name in tables]
    return ", ".join(
        f"{name}.{key} = {new.get(key)!r} (there: {old.get(key)!r})"
        for name, new, old in pairs
        for key in new | old
        if new.get(key) != old.get(key)
    )


def load_table(kind: type[T], name_or_path: str, *, overrides: Sequence[str] = ()) -> T:
    """The table of training or of evaluation, as :func:`glit.recipes.toml_tables.load_table`.

    Args:
        kind: ``TrainConfig`` or ``EvaluateConfig``.
        name_or_path, overrides: as of :func:`load_recipe`.

    Raises: as :func:`load_recipe`.
    """
    return toml_tables.load_table(
        kind, name_or_path, known_tables=known_tables, overrides=overrides
    )


def known_tables() -> list[str]:
    """The tables that a recipe may hold."""
    return [*(step.name for step in all_steps()), *LEARN_TABLES]


def read_tables(name_or_path: str, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A recipe's raw tables, as :func:`glit.recipes.toml_tables.read_tables`."""
    return toml_tables.read_tables(name_or_path, known_tables=known_tables, overrides=overrides)


def overridden_tables(
    overrides: Sequence[str], of: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The raw tables that ``table.key=value`` strings make by themselves."""
    return toml_tables.overridden_tables(overrides, known=known_tables(), of=of)


def _refuse_ignored(overrides: Sequence[str], tables: dict[str, Any], recipe: Recipe) -> None:
    """Refuse keys of steps that are switched off, as they would have no effect.

    A table that says ``enabled = false`` itself may keep its keys, for the day it is turned on.
    """
    on = enabled(recipe.tables)
    for name, given in overridden_tables(overrides).items():
        config = recipe.tables.get(name)
        if config is None or name in on or given.get("enabled") is False or {"enabled"} == {*given}:
            continue
        switch, own = getattr(config, "follows", name), tables[name].get("enabled")
        if switch != name or own is False or on_by_default(config):
            raise RecipeError(
                f"--set {_keys(name, given)}: {switch}.enabled = false turns [{name}] off, so this "
                "would change nothing; leave one of the two out"
            )
    for name, config in recipe.tables.items():
        given = tables.get(name, {})
        if given and name not in on and "enabled" not in given and not on_by_default(config):
            raise RecipeError(
                f"{_keys(name, given)}: would change nothing, since [{name}] is off; set "
                f"{name}.enabled = true as well"
            )


def _keys(table: str, given: dict[str, Any]) -> str:
    return ", ".join(f"{table}.{key}" for key in given)
