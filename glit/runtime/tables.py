"""Figures as text, and pages of text and tables, as Markdown and on a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable

_SMALLEST = 0.0001
_WIDE = 110  # columns of a terminal on which ranges fit beside medians

Spread = Mapping[str, float]
"""``median``, ``min`` and ``max`` of a figure over the repeats."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def figure(value: float) -> str:
    """Three digits, without an exponent.

    >>> figure(183.26), figure(1.23456), figure(0.012345), figure(0.00001), figure(0)
    ('183', '1.23', '0.0123', '< 0.0001', '0')
    """
    if value == 0:
        return "0"
    if value < _SMALLEST:
        return f"< {_SMALLEST}"
    decimals = 0
    while value * 10**decimals < 100 and decimals < 4:
        decimals += 1
    return f"{value:,.{decimals}f}"


def with_range(values: Spread) -> str:
    """The median, and min–max where it differs.

    >>> with_range(dict(median=2.0, min=1.5, max=4.25))
    '2.00 (1.50–4.25)'
    """
    median, low, high = (figure(values[name]) for name in ("median", "min", "max"))
    return median if low == high else f"{median} ({low}–{high})"


def percent(values: Sequence[float]) -> str:
    """Per cent: the mean, with the standard deviation where there are several.

    >>> percent([0.5, 0.7]), percent([0.5]), percent([])
    ('60.0 ± 14.1', '50.0', '')
    """
    if not values:
        return ""
    mean = f"{100 * statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * statistics.stdev(values):.1f}"


def with_half_range(values: Sequence[float | None]) -> str:
    """Mean and, in brackets, half the distance of the highest and the lowest.

    >>> with_half_range([0.5, None, 0.7])
    '0.600 (0.100)'
    """
    numbers = [value for value in values if value is not None and value == value]
    if not numbers:
        return ""
    half = (max(numbers) - min(numbers)) / 2
    return f"{statistics.fmean(numbers):.3f} ({half:.3f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells below heads; columns of figures stand to the right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    """So many first columns hold words."""
    strong: Sequence[str] = ()
    """First cells of the rows in bold."""

    def lines(self) -> list[str]:
        """Markdown.

        >>> Table(heads=["", "s"], rows=[["a|b", "1"], ["all", "2"]], strong=["all"]).lines()
        ['|  | s |', '| --- | ---: |', '| a/b | 1 |', '| **all** | **2** |']
        """
        lines = [self.heads, ["---"] * self.words + ["---:"] * (len(self.heads) - self.words)]
        for row in self.rows:
            mark = "**" if row[0] in self.strong else ""
            lines.append([f"{mark}{cell.replace('|', '/')}{mark}" for cell in row])
        return [f"| {' | '.join(line)} |" for line in lines]

    def show(self, console: Console) -> None:
        """Print it; a narrow terminal shows medians without their ranges."""
        table = RichTable()
        for number, head in enumerate(self.heads):
            table.add_column(
                head, justify="left" if number < self.words else "right", overflow="fold"
            )
        for row in self.rows:
            cells = row
            if console.width < _WIDE:
                cells = [row[0], *(cell.partition(" (")[0] for cell in row[1:])]
            table.add_row(*cells, style="bold" if row[0] in self.strong else None)
        console.print(table)


Page = Sequence["str | Table"]
"""Paragraphs (``# `` before a heading, ``- `` before each line of a list) and tables."""


def markdown(page: Page) -> str:
    """A page as text."""
    blocks = [block if isinstance(block, str) else "\n".join(block.lines()) for block in page]
    return "\n\n".join(block for block in blocks if block) + "\n"


def show(page: Page, console: Console) -> None:
    """The same on the terminal."""
    for block in page:
        if isinstance(block, Table):
            block.show(console)
        elif block:
            console.print(block, soft_wrap=True, markup=False)
