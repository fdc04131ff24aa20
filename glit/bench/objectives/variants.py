"""An objective of a comparison, with settings of its own."""

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
    """An objective, with settings of its own: ``clip``, ``long-clip lambda_short=0``.

    Raises:
        UserError: no such objective, or no setting that a variant can have.
    """

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
        """Overrides of ``train``."""
        objective, *words = shlex.split(self.name)
        return [f"train.objective={objective}", *(f"train.{word}" for word in words)]

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^\w.=+-]+", "_", self.name)
