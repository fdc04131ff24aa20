"""Add parts to glit from a package of your own; a plugin calls these when it is imported.

Recipes, the command line, status, retry, verify, pages and cards then know the part, and what is
made with it names the plugin and a hash of its source (docs/extend.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glit.errors import RecipeError

if TYPE_CHECKING:
    from glit.data.records import Region
    from glit.evaluation.scorers.protocol import Scorer
    from glit.exporters import Exporter, ExportFormat
    from glit.images import Pixels
    from glit.inputs.published import Reader
    from glit.models.backends.base import Backend
    from glit.rules.protocol import Rule
    from glit.stages.base import Step
    from glit.training.objective import Objective


def add_captioner(name: str, part: Backend | Callable[[Pixels], str]) -> None:
    """Add a value of ``caption.backend``.

    Args:
        name: the value.
        part: a backend, constructed with (config, model, prompt); or a function that takes a
            decoded image, uint8 RGB [height, width, 3], and returns its caption.
    """
    from glit.models.backends.base import Backend
    from glit.models.backends.captioners import CAPTIONERS
    from glit.models.backends.protocols import RawCaption

    class Captioner:
        """A captioner that is one function."""

        def caption(
            self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
        ) -> list[RawCaption]:
            assert not isinstance(part, Backend)
            return [RawCaption(text=part(image), cut=False) for image in images]

    _add(CAPTIONERS, name, _as_backend(part, Captioner), "caption.backend")


def add_proposer(name: str, part: Backend | Callable[[Pixels], Sequence[Region]]) -> None:
    """Add a value of ``propose.backend``.

    Args:
        name: the value.
        part: a backend, constructed with (config, model); or a function that takes a decoded
            image, uint8 RGB [height, width, 3], and returns its regions, best first.
    """
    from glit.models.backends.base import Backend
    from glit.models.backends.proposers import PROPOSERS

    class Proposer:
        """A detector that is one function."""

        def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
            assert not isinstance(part, Backend)
            return [list(part(image)) for image in images]

    _add(PROPOSERS, name, _as_backend(part, Proposer), "propose.backend")


def add_grounder(name: str, part: Backend) -> None:
    """Add a value of ``ground.backend``, constructed with (config, model)."""
    from glit.models.backends.grounders import GROUNDERS

    _add(GROUNDERS, name, part, "ground.backend")


def add_matcher(name: str, part: Backend) -> None:
    """Add a value of ``score.backend``, constructed with (config, model)."""
    from glit.models.backends.matchers import MATCHERS

    _add(MATCHERS, name, part, "score.backend")


def add_rule(name: str, part: type[Rule]) -> None:
    """Add a value of ``pair.rule``; its fields become keys of ``[pair]``."""
    from glit.rules import RULES

    _add(RULES, name, part, "pair.rule")


def add_stage(part: type[Step], *, before: str = "pack") -> None:
    """Add a stage to the flow.

    Args:
        part: the class; its table should have a key ``enabled`` that is false by default.
        before: the name of the stage that it comes before.

    Raises:
        RecipeError: there is a stage of its name, or none to come before.
    """
    from glit import stages

    names = [step.name for step in stages.FLOW]
    if part.name in names:
        raise RecipeError(f"stage {part.name!r}: there is one of that name already")
    if before not in names[1:]:
        raise RecipeError(f"stage {part.name!r} before {before!r}: want {', '.join(names[1:])}")
    at = names.index(before)
    stages.FLOW = (*stages.FLOW[:at], part, *stages.FLOW[at:])


def add_objective(name: str, part: type[Objective]) -> None:
    """Add a value of ``train.objective``; its fields become keys of ``[train]``."""
    from glit.training.objectives import OBJECTIVES

    _add(OBJECTIVES, name, part, "train.objective")


def add_scorer(name: str, part: type[Scorer]) -> None:
    """Add a value of ``evaluate.scorer``; its fields become keys of ``[evaluate]``."""
    from glit.evaluation.scorers import SCORERS

    _add(SCORERS, name, part, "evaluate.scorer")


def add_task(name: str, part: Callable[..., Any], *, about: str = "") -> None:
    """Add a task of ``glit eval``: a function of an embedder, a collection and the ``[evaluate]``
    table that returns figures by name; and what it measures, in one line for ``glit eval -h``."""
    from glit.evaluation.tasks import TASKS, Task

    _add(TASKS, name, Task(run=part, about=about), "the task")


def add_exporter(name: str, part: Exporter | ExportFormat) -> None:
    """Add a format of ``glit export --to``: a function of the dataset, an empty folder, and a
    callback that takes the number of rows written since its last call; or its ``ExportFormat``."""
    from glit.exporters import EXPORTERS, ExportFormat

    made = part if isinstance(part, ExportFormat) else ExportFormat(write=part)
    _add(EXPORTERS, name, made, "the format")


def add_reader(name: str, part: Reader) -> None:
    """Add a format of ``glit eval --format`` and ``glit import --format``: a function of the
    annotations, the folder with the images and the split that yields annotated images."""
    from glit.inputs.published import FORMATS, CaptionFormat

    _add(FORMATS, name, CaptionFormat(read=part), "the format")


def _as_backend(part: Any, kind: type) -> Backend:
    from glit.models.backends.base import Backend

    if isinstance(part, Backend):
        return part

    def make(*_: Any) -> Any:
        return kind()

    make.__module__ = part.__module__  # where its plugin is told by
    return Backend(make=make, needs_model=False)


def _add(registry: dict[str, Any], name: str, part: Any, what: str) -> None:
    if name in registry and registry[name] != part:
        raise RecipeError(f"{what} {name!r}: there is one of that name already")
    registry[name] = part
