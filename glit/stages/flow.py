"""The flow of a recipe: its enabled steps in order, and what each of them waits for.

A step says what it reads of a sample and what it makes. From that follows which steps are
upstream of it: those that make what it reads, those these depend on, and every filter before it.
The last step, pack, is downstream of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glit.data.schema import DATASET_SCHEMA, Columns, is_column_type
from glit.errors import RecipeError
from glit.models.weights import is_here, is_mini
from glit.stages.base import Stage, Step, TableStep
from glit.stages.plan import Recipe

EVERYTHING = "*"
"""An entry of ``reads`` for whatever the steps before it make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Enabled steps, in the order a sample meets them. Made by :func:`make_flow`."""

    steps: tuple[type[Step], ...]
    direct: Mapping[str, tuple[str, ...]]
    """By step: the steps it builds on directly; their fingerprints enter its own."""
    upstream: Mapping[str, tuple[str, ...]]
    """By step: every stage that it depends on, in flow order; of the first one none."""

    @property
    def stages(self) -> dict[str, type[TableStep]]:
        """The steps that keep a table a chunk, by name."""
        return {step.name: step for step in self.steps if issubclass(step, TableStep)}

    @property
    def later_stages(self) -> dict[str, type[Stage]]:
        """The stages that turn samples into samples: all but the first."""
        return {step.name: step for step in self.steps if issubclass(step, Stage)}

    @property
    def ends(self) -> tuple[str, ...]:
        """The stages on which the dataset is built directly; all others are upstream of them."""
        return self.direct[self.steps[-1].name]

    def step(self, name: str) -> type[Step]:
        """A step by its name."""
        return next(step for step in self.steps if step.name == name)

    def extras(self, recipe: Recipe) -> dict[str, str]:
        """The extras that the steps run on, and what needs each; the first step that does."""
        found: dict[str, str] = {}
        for step in self.steps:
            found = {**step.extras(recipe), **found}
        for name, _ in self.models(recipe).values():
            if is_mini(name) and not is_here(name):
                found.setdefault("mini", f"the model {name}")
        return found

    def models(self, recipe: Recipe) -> dict[str, tuple[str, str]]:
        """The models that the steps open, by role: name and revision."""
        return {role: model for s in self.steps for role, model in s.models(recipe).items()}

    def suffixes(self, recipe: Recipe) -> dict[str, str]:
        """Suffixes of the files beside the images that are read, by the first step that does."""
        found: dict[str, str] = {}
        for step in self.steps:
            backend = step.backend(recipe.tables[step.name])
            if backend and backend.beside and backend.beside not in found.values():
                found[step.name] = backend.beside
        return found

    def given(self, recipe: Recipe) -> dict[str, str]:
        """The first steps that read the user's files, by what is in these: captions, regions."""
        found: dict[str, str] = {}
        for step in self.steps:
            backend = step.backend(recipe.tables[step.name])
            if backend and backend.brings:
                found.setdefault(backend.brings, step.name)
        return found

    @property
    def dataset_columns(self) -> Columns:
        """Columns that stages add to the dataset's standard ones."""
        made = (column for s in self.stages.values() for column in s.dataset_columns)
        return tuple(dict.fromkeys(made))


def make_flow(steps: Sequence[type[Step]]) -> Flow:
    """The flow of some steps.

    Raises:
        RecipeError: two steps have one name, a step reads what no step before it makes, or one
            replaces what another made without reading it.
    """
    direct: dict[str, tuple[str, ...]] = {}
    below: dict[str, set[str]] = {}
    makers: dict[str, list[str]] = {}
    filters: list[str] = []
    for step in steps:
        if step.name in direct:
            raise RecipeError(f"[{step.name}]: two steps of the flow have this name")
        everything = EVERYTHING in step.reads
        wanted = set(filters)
        for thing in makers if everything else step.reads:
            if thing not in makers:
                raise RecipeError(
                    f"[{step.name}] reads {thing!r}, which no enabled step before it makes (they "
                    f"make {', '.join(makers) or 'nothing'}); enable such a step, or leave out "
                    f"[{step.name}]"
                )
            wanted |= set(makers[thing])
        if everything:
            wanted = set(direct)
        reached = set().union(*(below[name] for name in wanted))
        direct[step.name] = tuple(name for name in direct if name in wanted - reached)
        below[step.name] = wanted | reached
        for thing in step.makes:
            if thing in makers and not everything and thing not in step.reads:
                raise RecipeError(
                    f"[{step.name}] makes {thing!r}, which {makers[thing][-1]} has made, without "
                    "reading it; want it among what the step reads"
                )
            makers.setdefault(thing, []).append(step.name)
        if step.filters:
            filters.append(step.name)
    stages = [step.name for step in steps if issubclass(step, TableStep)]
    made = Flow(steps=tuple(steps), direct=direct, upstream={})
    _check_columns(made)
    upstream = {name: tuple(s for s in stages if s in found) for name, found in below.items()}
    return dataclasses.replace(made, upstream=upstream)


def _check_columns(flow: Flow) -> None:
    """Refuse a column that two stages add, unless the later one extends it, and of a type that
    datasets do not have."""
    seen = {field.name: field.type for field in DATASET_SCHEMA}
    for stage in flow.stages.values():
        for name, kind in stage.dataset_columns:
            if name in seen and (name not in stage.extends or seen[name] != kind):
                raise RecipeError(f"two stages add the column {name!r} to the dataset; rename one")
            if not is_column_type(kind):
                raise RecipeError(
                    f"[{stage.name}] adds the column {name!r} as {kind}; want text, bool, numbers "
                    "but half precision, or lists and structs of these"
                )
            seen[name] = kind
