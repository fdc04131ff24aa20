"""Count figures of a dataset while its rows stream by, in constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from glit.view.histogram import histogram

if TYPE_CHECKING:
    from glit.dataset.row import Row

_STEP = 0.005
"""To which similarities are rounded."""


class Figures:
    """Counts and medians of a dataset."""

    def __init__(self) -> None:
        self._words: Counter[int] = Counter()
        self._sentences: Counter[int] = Counter()
        self._regions: Counter[int] = Counter()
        self._similarity: Counter[int] = Counter()

    def counting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows unchanged and count them."""
        for row in rows:
            self._words[len(row.caption.text.split())] += 1
            self._sentences[len(row.sentences)] += 1
            self._regions[len(row.regions)] += 1
            self._similarity.update(
                round(pair.similarity / _STEP) for pair in row.pairs if not pair.global_wins
            )
            yield row

    def table(self) -> str:
        """The figures as a Markdown table."""
        rows = [
            ("sentences", _sum(self._sentences)),
            ("regions", _sum(self._regions)),
            ("pairs", self._similarity.total()),
            ("words a caption, median", _median(self._words)),
            ("sentences a caption, median", _median(self._sentences)),
            ("regions an image, median", _median(self._regions)),
            ("similarity of pairs, median", _median(self._similarity, step=_STEP)),
        ]
        shown = "\n".join(f"| {name} | {value} |" for name, value in rows if value is not None)
        return f"| figure | |\n|---|---:|\n{shown}"


def _sum(counts: Counter[int]) -> int:
    return sum(value * count for value, count in counts.items())


def _median(counts: Counter[int], *, step: float = 1) -> str | None:
    found = histogram(sorted(counts.items()), smallest_step=1)
    return None if found is None else f"{found.median * step:.6g}"
