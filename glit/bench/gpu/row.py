"""A figure of the benchmark, beside what the machine would allow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure; larger is better, whatever its unit."""

    what: str
    measured: float
    unit: str
    limit: float | None = None
    """What the machine would give by its measured rates or its data sheet; None where nothing is
    counted."""
    bottleneck: str = ""
    """What it waits for first."""

    @property
    def ratio(self) -> float | None:
        """The share of the limit that is reached."""
        return self.measured / self.limit if self.limit else None


def largest(parts: dict[str, float]) -> str:
    """The part that takes longest, and its share.

    >>> largest({"decode": 1.0, "encode": 3.0})
    'encode, 75 %'
    """
    name = max(parts, key=lambda part: parts[part])
    return f"{name}, {100 * parts[name] / max(sum(parts.values()), 1e-12):.0f} %"
