"""When a build stops by itself: shares of drops, hours, tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from glit.errors import UserError

Drops = float | Mapping[str, float]
"""The largest share of samples that a step may drop, 0 to 1; or such shares by reason, with that of
all reasons together under :data:`ALL`."""
ALL = "all"


def drops_word(drops: Drops) -> str:
    """The shares as ``--max-drops`` takes them.

    >>> drops_word({"all": 0.05, "no_caption": 0.015})
    '5%,no_caption=1.5%'
    """
    shares = drops if isinstance(drops, Mapping) else {ALL: drops}
    found = {reason: f"{100 * share:.10g}%" for reason, share in shares.items()}
    return ",".join(s if reason == ALL else f"{reason}={s}" for reason, s in found.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run stops by itself; what is done is kept.

    Raises:
        UserError: a limit that means nothing.
    """

    drops: Drops = 1.0
    """What a step may drop, filters aside."""
    hours: float = math.inf
    """It is looked at when a chunk is done."""
    tokens: int | None = None
    """Most tokens of prompts and answers over all runs of the build, checked after each chunk."""

    def __post_init__(self) -> None:
        for share in self.shares.values():
            if not 0 <= share <= 1:  # NaN is none either
                raise UserError(f"max_drops {share}: want a share from 0 to 1, such as 0.05")
        if not self.hours > 0:
            raise UserError(f"max_hours {self.hours}: want hours above 0, such as 7.5")
        if self.tokens is not None and not self.tokens > 0:
            raise UserError(f"max_tokens {self.tokens}: want 1 or more, such as 2M")

    @property
    def shares(self) -> Mapping[str, float]:
        """The largest shares by reason, and of all reasons under :data:`ALL`."""
        return self.drops if isinstance(self.drops, Mapping) else {ALL: self.drops}
