"""The interface of a step: what it declares of itself, and what a stage does.

A step is one file with one class. The class attributes say what it is called, what it reads and
makes, how it is configured and what it adds to a sample; a worker makes an instance to run it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from glit.data.records import Drop, DropError, Sample
from glit.data.rows import drop_row
from glit.data.schema import Columns
from glit.errors import GlitError
from glit.models.backends.base import Backend
from glit.models.backends.protocols import Usage
from glit.models.weights import Resolved
from glit.runtime.gpu_errors import free_memory, is_out_of_memory, ruins_process
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe

Outcome = Sample | Drop
In = TypeVar("In")
Out = TypeVar("Out")


class Step(ABC):
    """A step of the flow, as the plan sees it."""

    name: ClassVar[str]
    """Also the name of its table in a recipe."""
    version: ClassVar[int]
    """Raised whenever its code would answer differently for the same input."""
    reads: ClassVar[tuple[str, ...]]
    """The parts of a sample that it reads: ``image``, ``caption``, ``sentences``, ``regions``,
    ``scores``, ``pairs``, or what another step makes. Which steps it waits for follows from it."""
    makes: ClassVar[tuple[str, ...]] = ()
    """The parts of a sample that it makes or changes."""
    filters: ClassVar[bool] = False
    """True for a step that is there to drop samples, so that every later step sees only what it
    kept. Any other step may drop too; then the steps that depend on it do not see the sample."""
    config: ClassVar[type]
    """Its table in a recipe: a frozen dataclass. It is off where the table has a
    key ``enabled`` that is false, or ``follows`` the table of another step that is off."""
    columns: ClassVar[Columns] = ()
    """The columns that its table adds to a sample."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """Drop reasons of its own besides ``records.REASONS``, and what they mean."""
    retryable: ClassVar[bool] = False
    """True if ``glit retry --set`` may change its settings, for the samples alone that are tried
    again."""
    title: ClassVar[str] = ""
    """The name of its results in reports; a step without one is left out there."""
    shows: ClassVar[str] = "backend"
    """The key of its table that reports give beside the title."""
    role: ClassVar[str] = ""
    """The role of its backend's model, which reports name."""

    @classmethod
    def chosen(cls, config: Any) -> type[Step]:
        """The step as a configuration wants it: itself, or a subclass with further columns."""
        return cls

    @classmethod
    def backend(cls, config: Any) -> Backend | None:
        """The backend that a configuration asks for."""
        return None

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        """The optional extras it runs on, and what each is needed for."""
        config = recipe.tables[cls.name]
        backend = cls.backend(config)
        if backend is None:
            return {}
        return dict.fromkeys(backend.extras, f"{cls.name}.backend = {config.backend!r}")

    @classmethod
    def models(cls, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """The models it opens, by role: name and revision; that of its backend, if it has one."""
        config = recipe.tables[cls.name]
        backend = cls.backend(config)
        if backend is None or not backend.needs_model:
            return {}
        return {cls.role: (config.model, config.revision)}

    @classmethod
    def with_models(cls, config: Any, models: Mapping[str, Resolved]) -> Any:
        """Its table with what the models of the recipe decide."""
        return config

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse a plan in which tables do not fit together, before the first image is read.

        Raises:
            RecipeError: names the keys.
        """
        return

    @classmethod
    def check_off(cls, config: Any) -> None:
        """Check the settings of this step where it is off because the step it follows is.

        Settings that would drop samples must not be ignored silently.

        Raises:
            RecipeError: names the keys.
        """
        return

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        """Return the inputs that decide its results beside its table: models, prompts, keys of
        other tables.

        Without more, that is the model of its role, if it has one.
        """
        model = plan.models.get(cls.role)
        return {"model": model.identity() if model else {}} if cls.role else {}


def parts_of(step: type[Step], config: Any) -> list[Any]:
    """The classes and functions that a table of a step chooses: itself, its backend, a rule."""
    backend, choice = step.backend(config), getattr(config, "choice", None)
    chosen = choice.options().get(getattr(config, choice.key)) if choice else None
    return [step, *([backend.make] if backend else []), *([chosen] if chosen else [])]


class TableStep(Step):
    """A step that keeps a table: one row for each of its items, a result or a drop.

    The items of the first step are the entries of the listing, those of all others samples.
    """

    key: ClassVar[str] = "sample_id"
    """The column that tells its rows apart."""
    dataset_columns: ClassVar[Columns] = ()
    """Its columns that become columns of the dataset, after the standard ones."""
    extends: ClassVar[tuple[str, ...]] = ()
    """Those of ``dataset_columns`` that an earlier step may make too, whose values it keeps."""
    about: ClassVar[Mapping[str, str]] = {}
    """A sentence on each of ``dataset_columns``, also of its subclasses, for ``croissant.json``."""

    @classmethod
    def drops_before_models(cls, plan: Plan) -> bool:
        """Return whether it knows its drops without a model or a server. Later stages that do not
        depend on it then wait for it all the same, and do not process what it dropped."""
        return False

    @classmethod
    @abstractmethod
    def open(cls, plan: Plan) -> Self:
        """Load the model; the expensive part of starting a worker."""

    @classmethod
    def blank(cls, item: Any) -> dict[str, Any]:
        """Return the row of an item before anything is done with it."""
        return {"sample_id": item.sample_id}

    @classmethod
    def drop(cls, item: Any, drop: Drop) -> dict[str, Any]:
        """The row of an item that is dropped."""
        return {**cls.blank(item), "drop": drop_row(drop)}

    @abstractmethod
    def rows(self, items: Sequence[Any], images: ImageSource) -> Iterator[dict[str, Any]]:
        """Exactly one row per item, in order."""

    def usage(self) -> Usage:
        """Return what its model has used since this was last asked; nothing if it has none that
        counts."""
        return Usage()


class Stage(TableStep):
    """A step that turns samples into samples: one in, one or its drop out, in order.

    ``open`` may give an instance of a subclass, by backend; its class attributes are the same.
    """

    as_rows: ClassVar[tuple[Callable[[Any], Any], Callable[[Any], Any]] | None] = None
    """Two functions, if its one column is a list that the sample has under the same name: one makes
    a row of an item of it, one goes the other way."""

    @abstractmethod
    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        """Exactly one outcome per sample, in order."""

    def rows(self, items: Sequence[Sample], images: ImageSource) -> Iterator[dict[str, Any]]:
        for sample, outcome in zip(items, self.process(items, images), strict=True):
            yield self.outcome_row(sample, outcome)

    @classmethod
    def outcome_row(cls, sample: Sample, outcome: Outcome) -> dict[str, Any]:
        """The row of a sample that was processed."""
        if isinstance(outcome, Drop):
            return cls.drop(sample, outcome)
        return {**cls.blank(sample), **cls.row(outcome)}

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        """A finished sample's columns; without ``as_rows`` those that ``process`` put into
        ``extra``."""
        if cls.as_rows is not None:
            ((name, _),) = cls.columns
            return {name: [cls.as_rows[0](each) for each in getattr(sample, name) or ()]}
        return {name: sample.extra.get(name) for name, _ in cls.columns}

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        """The sample with these columns read back in."""
        if not cls.columns:
            return sample
        if cls.as_rows is not None:
            ((name, _),) = cls.columns
            return dataclasses.replace(sample, **{name: tuple(map(cls.as_rows[1], row[name]))})
        found = {name: row[name] for name, _ in cls.columns}
        return dataclasses.replace(sample, extra={**sample.extra, **found})


def isolate(
    items: Sequence[In],
    run: Callable[[Sequence[In]], Sequence[Out]],
    *,
    reason: str = "model_error",
) -> list[Out | Drop]:
    """``run(items)``; when it raises, halves of it, down to single items that become drops.

    One bad sample therefore never takes its batch with it, and a batch too large for the
    device's memory is done in smaller ones. Two kinds pass through, because they concern the run
    and no sample: glit's own errors, and those after which the process cannot use its GPU.
    """
    if not items:
        return []
    try:
        results: list[Out | Drop] = list(run(items))
    except GlitError:
        raise
    except Exception as error:
        if ruins_process(error):
            raise
        if isinstance(error, DropError):
            drop = Drop(reason=error.reason or reason, message=error.message)
        else:
            drop = Drop(reason=reason, message=f"{type(error).__name__}: {error}")
        short_of_memory = is_out_of_memory(error)
    else:
        assert len(results) == len(items), f"{len(results)} results for {len(items)} items"
        return results
    # only here has the error let go of the tensors of the attempt that failed
    if short_of_memory:
        free_memory()
    if len(items) == 1:
        return [drop]
    half = len(items) // 2
    return isolate(items[:half], run, reason=reason) + isolate(items[half:], run, reason=reason)
