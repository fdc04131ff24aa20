"""Turn a recipe into a plan, once its models are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from glit.inputs.lookup import BroughtCaptions, UserTable
from glit.masking import without_secrets
from glit.models.weights import Resolved
from glit.recipes.config import as_table, enabled, is_enabled, on_by_default
from glit.recipes.plugins import Plugin
from glit.rules.calibration import Calibration

if TYPE_CHECKING:
    from glit.stages.flow import Flow

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what a build produces; one table a step of the flow."""

    plugins: tuple[Plugin, ...] = ()
    """Whose parts it uses. First, so that another process loads them before it reads the rest."""
    name: str
    about: str = ""
    tables: Mapping[str, Any]
    """The configuration of every step, by its name."""

    def __getattr__(self, step: str) -> Any:
        """``recipe.propose`` is the table of propose."""
        if step != "tables" and step in self.tables:
            return self.tables[step]
        raise AttributeError(step)

    def of(self, kind: type[ConfigT]) -> ConfigT:
        """The table of this class."""
        return next(table for table in self.tables.values() if type(table) is kind)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the manifest; of a step that is off unlike by default, its switch."""
        tables, on = {}, enabled(self.tables)
        for name, table in self.tables.items():
            is_default = is_enabled(table) == on_by_default(table)
            if name in on:
                tables[name] = {key: _written(value) for key, value in as_table(table).items()}
                if is_default:
                    tables[name].pop("enabled", None)
            elif not is_default:
                tables[name] = {"enabled": False}
        own = [plugin.identity() for plugin in self.plugins]
        return {
            "name": self.name, "about": self.about, **({"plugins": own} if own else {}), **tables
        }  # fmt: skip


def _written(value: Any) -> Any:
    """A value as it may stand in a manifest: an address without its user and password."""
    return without_secrets(value) if isinstance(value, str) and "://" in value else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe with its models found, its device and precisions decided, its prompt read.

    Made once, by :func:`glit.pipeline.planning.plan.make_plan`, and carried to every worker.
    Picklable.
    """

    recipe: Recipe
    """The recipe as the user wrote it; a rule's logit scale is the matcher's own where none was
    given."""
    flow: Flow
    """Its enabled steps."""
    configs: Mapping[str, Any]
    """The recipe's tables by step, ``auto`` in device and precision settled."""
    models: Mapping[str, Resolved]
    """By role: captioner, tokenizer, proposer, matcher."""
    prompt: str
    """The prompt of captioners."""
    further_prompts: Mapping[str, str] = field(default_factory=dict)
    """The prompts of captioners for captions of further kinds."""
    brought: BroughtCaptions | None = None
    """The user's captions."""
    regions: UserTable | None = None
    """The user's regions."""
    suffixes: Mapping[str, str] = field(default_factory=dict)
    """Suffixes of the files beside the images that are read, by the first step that does."""
    beside: tuple[str, ...] = ()
    """The steps that read something besides the image, in the order of ``Chunk.beside``: files
    beside it, then its captions and its regions in the user's files."""
    calibration: Calibration | None = None
    """The calibration that gives pairs their probability."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By step: a hash of all that decides its results."""

    def config(self, kind: type[ConfigT]) -> ConfigT:
        """The settled table of this class."""
        return next(table for table in self.configs.values() if type(table) is kind)

    @property
    def folders(self) -> dict[str, str]:
        """Return by stage the folder of its tables."""
        return {name: self.folder(name) for name in self.flow.stages}

    def folder(self, step: str) -> str:
        """Name of a step's folder of tables."""
        return f"{step}-{self.fingerprints[step]}"
