"""The variants compared: objectives with settings, and learning rates of their runs."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from glit.errors import UserError
from glit.training.objectives import OBJECTIVES

_SET_FOR_ALL = ("objective", "model", "lr", "seed", "trackers")
"""Keys of ``[train]`` that the comparison itself sets for every run."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An objective, with settings of its own: ``clip``, ``long-clip lambda_short=0``."""

    name: str
    """The objective and then settings of ``[train]``, ``key=value`` each, split at blanks as a
    shell does."""

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.name)
        except ValueError as error:
            raise UserError(f"--objective {self.name!r}: {error}") from None
        if not words or words[0] not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise UserError(f"--objective {self.name!r}: wanted one of {known}")
        for word in words[1:]:
            key, equals, _ = word.partition("=")
            if not equals:
                raise UserError(f"--objective {self.name!r}: {word!r} is no key=value of [train]")
            if key.strip() in _SET_FOR_ALL:
                raise UserError(
                    f"--objective {self.name!r}: {key.strip()} is the same for all rows; it has an "
                    "option of its own, or is searched"
                )

    @property
    def objective(self) -> str:
        return shlex.split(self.name)[0]

    @property
    def settings(self) -> list[str]:
        return [f"train.{word}" for word in shlex.split(self.name)[1:]]

    @property
    def folder(self) -> str:
        return re.sub(r"[^\w.=+-]+", "_", self.name)

    @property
    def module_lr(self) -> float | None:
        """Default learning rate of the objective's own parameters; None where it has none, or
        where the settings give it."""
        key = self._module_key
        if not key or any(each.startswith(f"train.{key}=") for each in self.settings):
            return None
        return getattr(OBJECTIVES[self.objective](), key)

    def with_module_lr(self, lr: float) -> str:
        """The override that sets it."""
        return f"train.{self._module_key}={lr:g}"

    @property
    def _module_key(self) -> str:
        """``siglip_lr``, ``refinement_lr`` and the like; empty where there is none."""
        keys = dir(OBJECTIVES[self.objective])
        return next((key for key in keys if key.endswith("_lr") and key != "module_lr"), "")


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates of a run."""

    lr: float
    module: float | None = None
    """Learning rate of the objective's own parameters; None for its default."""

    def __str__(self) -> str:
        return f"learning rate {self.short}"

    @property
    def short(self) -> str:
        return f"{self.lr:g}" if self.module is None else f"{self.lr:g} / {self.module:g}"

    @property
    def folder(self) -> str:
        return self.short.replace(" / ", ",")

    @property
    def order(self) -> tuple[float, float]:
        return self.lr, self.module or 0.0
