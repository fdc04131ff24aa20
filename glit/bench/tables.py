"""Figures as text: medians and spreads, and tables as Markdown and on the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_SMALLEST = 0.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over the repeats."""

    median: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, min=1.0, max=3.0)
    """
    return Spread(median=statistics.median(values), min=min(values), max=max(values))


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

    >>> with_range(Spread(median=2.0, min=1.5, max=4.25))
    '2.00 (1.50–4.25)'
    """
    shown = figure(values.median)
    if figure(values.min) == figure(values.max):
        return shown
    return f"{shown} ({figure(values.min)}–{figure(values.max)})"


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


def markdown_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: int = 1,
    strong: Sequence[str] = (),
) -> list[str]:
    """Lines of a table; columns of figures stand to the right.

    Args:
        heads: of the columns.
        rows: cells.
        words: so many first columns hold words.
        strong: first cells of the rows in bold.

    >>> markdown_table(["", "s"], [["a|b", "1"], ["all", "2"]], strong=["all"])
    ['|  | s |', '| --- | ---: |', '| a/b | 1 |', '| **all** | **2** |']
    """
    lines = [heads, ["---"] * words + ["---:"] * (len(heads) - words)]
    for row in rows:
        mark = "**" if row[0] in strong else ""
        lines.append([f"{mark}{cell.replace('|', '/')}{mark}" for cell in row])
    return [f"| {' | '.join(line)} |" for line in lines]


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    strong: Sequence[str] = (),
) -> None:
    """The same on the terminal."""
    table = Table(heads[0])
    for head in heads[1:]:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] in strong else None)
    console.print(table)
