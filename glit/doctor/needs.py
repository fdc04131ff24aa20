"""List what a recipe needs: packages, models, sizes. Nothing is downloaded or loaded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from glit.doctor.models import Model, model_of
from glit.errors import MissingExtraError
from glit.models.weights import is_mini
from glit.pipeline.planning.recipe import LEARN_TABLES, load_recipe, load_table, read_tables
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
    captioner: str = ""
    """The model that writes captions, which nobody needs who brings captions; empty for none."""

    @property
    def line(self) -> str:
        """The steps to do before it runs here."""
        missing = [m for m in self.models if not m.here and not is_mini(m.name)]  # a package's
        steps = ["install packages"] * bool(self.install)
        if missing:
            steps.append(f"download {_weight(missing)}")
        if self.captioner in {model.name for model in missing}:
            rest = [model for model in missing if model.name != self.captioner]
            steps[-1] += f" ({_weight(rest) if rest else 'nothing'} with --captions)"
        return ", ".join(steps)


def _weight(models: Sequence[Model]) -> str:
    """The size of models to download; their names if none is known."""
    known = sum(model.num_bytes for model in models)
    if not known:
        return ", ".join(model.name for model in models)
    return ("" if all(model.num_bytes for model in models) else "at least ") + size(known)


def all_needs() -> list[Needs]:
    """Return the needs of the built-in recipes: of builds, then of trainings, each by name. A
    recipe that has both is among both."""
    tables = {name: read_tables(name) for name in builtin_recipes()}
    builds = [needs_of(name) for name, own in tables.items() if not _is_training(own)]
    return [*builds, *(_of_training(name, own) for name, own in tables.items() if "train" in own)]


def needs_of(recipe: str, settings: Sequence[str] = ()) -> Needs:
    """Return the needs of one recipe.

    Args:
        recipe: a built-in recipe's name or a TOML file's path.
        settings: ``table.key=value`` strings.

    Raises:
        RecipeError: no such recipe, or it or a setting is refused.
    """
    tables = read_tables(recipe, overrides=settings)
    if _is_training(tables):
        with contextlib.suppress(MissingExtraError, ModuleNotFoundError):  # then they go unchecked
            load_table(TrainConfig, recipe, overrides=settings)
        return _of_training(recipe, tables)
    loaded = load_recipe(recipe, overrides=settings)
    enabled = flow(loaded.tables)
    asked = enabled.models(loaded)
    return _needs(
        recipe, tables, "build", dict.fromkeys(asked.values()), enabled.extras(loaded),
        captioner=asked.get("captioner", ("",))[0],
    )  # fmt: skip


def _is_training(tables: Mapping[str, Any]) -> bool:
    return "train" in tables and "caption" not in tables


def _of_training(recipe: str, tables: Mapping[str, Any]) -> Needs:
    default = next(each.default for each in fields(TrainConfig) if each.name == "model")
    model = tables["train"].get("model", default)
    return _needs(recipe, tables, "train", [(model, "main")], {"train": "glit train"})


def _needs(
    recipe: str,
    tables: Mapping[str, Any],
    what: Literal["build", "train"],
    asked: Iterable[tuple[str, str]],
    extras: Mapping[str, str],
    captioner: str = "",
) -> Needs:
    absent = list(missing_packages(extras))
    return Needs(
        name=recipe,
        about=tables.get("about", ""),
        what=what,
        extras=tuple(extras),
        models=tuple(model_of(*each, recipes=(recipe,)) for each in asked),
        install=str(MissingExtraError(*absent)) if absent else "",
        captioner=captioner,
    )


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
