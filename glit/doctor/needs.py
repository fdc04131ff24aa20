"""List what a recipe needs: packages, models, sizes. Nothing is downloaded or loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from glit.doctor.models import Model, model_of
from glit.errors import MissingExtraError
from glit.planning.recipe import LEARN_TABLES, load_recipe, load_table, read_tables
from glit.recipes.extras import missing_packages
from glit.recipes.resources import builtin_recipes
from glit.runtime.progress import size
from glit.stages import all_steps, flow
from glit.training.config import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The packages and models that one recipe needs."""

    name: str
    about: str
    what: Literal["build", "train"]
    """The use of the recipe; that of a build may have settings of a training too."""
    extras: tuple[str, ...]
    models: tuple[Model, ...]
    install: str
    """The packages that are not installed, and the command that installs them; empty for none."""

    @property
    def line(self) -> str:
        """The steps to do before it runs here."""
        missing = [model for model in self.models if not model.here]
        known = "" if all(model.num_bytes for model in missing) else "at least "
        download = f"download {known}{size(sum(model.num_bytes for model in missing))}"
        return ", ".join(["install packages"] * bool(self.install) + [download] * bool(missing))


def all_needs() -> list[Needs]:
    """Return the needs of the built-in recipes: of builds, then of trainings, each by name."""
    return sorted(map(needs_of, builtin_recipes()), key=lambda each: each.what)


def needs_of(recipe: str, settings: Sequence[str] = ()) -> Needs:
    """Return the needs of one recipe.

    Args:
        recipe: a built-in recipe's name or a TOML file's path.
        settings: ``table.key=value`` strings.

    Raises:
        RecipeError: no such recipe, or it or a setting is refused.
    """
    if "train" in (tables := read_tables(recipe, overrides=settings)) and "caption" not in tables:
        asked, extras = [(_start(recipe, settings), "main")], {"train": "glit train"}
        what = "train"
    else:
        loaded = load_recipe(recipe, overrides=settings)
        enabled, what = flow(loaded.tables), "build"
        asked, extras = dict.fromkeys(enabled.models(loaded).values()), enabled.extras(loaded)
    absent = list(missing_packages(extras))
    return Needs(
        name=recipe,
        about=tables.get("about", ""),
        what=what,
        extras=tuple(extras),
        models=tuple(model_of(*each, recipes=(recipe,)) for each in asked),
        install=str(MissingExtraError(*absent)) if absent else "",
    )


def _start(recipe: str, settings: Sequence[str]) -> str:
    """The model that a training starts from; without its packages the settings are not checked."""
    try:
        return load_table(TrainConfig, recipe, overrides=settings).model
    except (MissingExtraError, ModuleNotFoundError):
        default = next(each.default for each in fields(TrainConfig) if each.name == "model")
        return read_tables(recipe, overrides=settings)["train"].get("model", default)


def as_toml(recipe: str, settings: Sequence[str] = ()) -> str:
    """The recipe as a file that stands alone: its own keys and those of the recipes below it.

    Raises:
        RecipeError: see :func:`needs_of`.
    """
    tables = read_tables(recipe, overrides=settings)
    plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items() if key != "name"]
    order = [step.name for step in all_steps()]
    for name in sorted(tables.keys() - plain.keys(), key=[*order, *LEARN_TABLES].index):
        keys = tables[name]
        lines += ["", f"[{name}]", *(f"{key} = {_value(keys[key])}" for key in keys)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value of a recipe in TOML."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{json.dumps(key)} = {_value(own)}' for key, own in value.items())} }}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    text = str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
