"""Compare two datasets of the same images, largest differences of pairs first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glit.data.geometry import iou
from glit.dataset.manifest import Tables
from glit.dataset.query import NUMBER, connect, numbered
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import InputError
from glit.runtime.progress import StageProgress, null_progress
from glit.version import __version__
from glit.view.charts import charts, totals
from glit.view.report import overview, thumbnail_url
from glit.view.samples import sample

MOST_COMPARED = 2000
"""Most samples in both datasets that are compared; of more, so many are drawn by chance."""
SAME_IOU = 0.5
"""From this overlap on, two boxes are the same choice."""

KINDS = ("same", "other", "only_a", "only_b", "neither", "reworded")
"""Relations of two datasets on a sentence: the same region, another, only one has any, none, or the
sentence is not in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two rows of the same image."""

    kinds: tuple[str, ...]
    """The kind in :data:`KINDS` of every sentence of A, then of those that only B has."""
    apart_a: tuple[int, ...]
    """Sentences of A whose choice is another in B."""
    apart_b: tuple[int, ...]

    @property
    def difference(self) -> float:
        """Share of the sentences with different choices."""
        agree = sum(kind in ("same", "neither") for kind in self.kinds)
        return 1 - agree / len(self.kinds) if self.kinds else 0.0


def compare_rows(a: Row, b: Row) -> Comparison:
    """Compare two rows sentence by sentence; only sentences with equal text count."""
    boxes_a, boxes_b = _choices(a), _choices(b)
    left: dict[str, list[int]] = {}
    for number, sentence in reversed(list(enumerate(b.sentences))):
        left.setdefault(sentence.text, []).append(number)
    kinds, apart_a, apart_b = [], [], []
    for number, sentence in enumerate(a.sentences):
        same = left.get(sentence.text)
        other = same.pop() if same else None
        kind = "reworded" if other is None else _kind(boxes_a.get(number), boxes_b.get(other))
        kinds.append(kind)
        if kind not in ("same", "neither"):
            apart_a.append(number)
            if other is not None:
                apart_b.append(other)
    only_b = [number for numbers in left.values() for number in numbers]
    kinds += ["reworded"] * len(only_b)
    apart_b += only_b
    return Comparison(kinds=tuple(kinds), apart_a=tuple(apart_a), apart_b=tuple(sorted(apart_b)))


def _choices(row: Row) -> dict[int, np.ndarray]:
    """Relative box of every sentence that has a region; frames of two datasets may differ."""
    size = np.array([row.width, row.height, row.width, row.height])
    return {
        pair.sentence: np.array(row.regions[pair.region].box.xyxy) / size
        for pair in row.pairs
        if not pair.global_wins
    }


def _kind(a: np.ndarray | None, b: np.ndarray | None) -> str:
    if a is None or b is None:
        return "neither" if a is b else "only_b" if a is None else "only_a"
    return "same" if iou(a[None], b[None])[0, 0] >= SAME_IOU else "other"


def compare_data(
    a: Dataset, b: Dataset, *, most: int, seed: int, progress: StageProgress | None = None
) -> dict[str, Any]:
    """The comparison page's data, as JSON.

    Args:
        a: the first dataset.
        b: the second; its images are those of the first at least in part.
        most: samples on the page.
        seed: of the choice of those that are compared, where there are very many.
        progress: shows the number of samples done.

    Raises:
        InputError: they have no image in common.
    """
    both = _in_both(a, b, seed)
    told = progress or null_progress()
    told.begin("compare", total=len(both.compared), done=0, drops=False)
    compared = []
    kinds: Counter[str] = Counter()
    for number_a, number_b in both.compared:
        rows = a[number_a], b[number_b]
        found = compare_rows(*rows)
        kinds.update(found.kinds)
        compared.append((found.difference, number_a, number_b, found))
        told.advance(1)
    compared.sort(key=lambda each: (-each[0], each[1]))
    return {
        "kind": "compare",
        "glit": __version__,
        "sides": [_side(a), _side(b)],
        "kinds": {kind: kinds[kind] for kind in KINDS},
        "common": both.common,
        "compared": len(compared),
        "seed": seed,
        "samples": [
            _sample(a, b, number_a, number_b, found)
            for _, number_a, number_b, found in compared[:most]
        ],
    }


def difference(a: Dataset, b: Dataset, *, seed: int = 0) -> dict[str, Any]:
    """Return the differences of two datasets, as JSON.

    ``images``: how many only A has, only B, and both. ``settings``: values of A and B by
    ``table.key`` of their recipes, where they differ, None where one has no such key; by
    ``table`` of one that only one of them has.
    ``sentences``: how many of the images in both are of each of :data:`KINDS`, among ``compared``
    images. ``same``: whether nothing differs.

    Args:
        a: the first dataset.
        b: the second.
        seed: of the choice of images whose sentences are compared, where both have very many.
    """
    try:
        both = _in_both(a, b, seed)
    except InputError:
        both = _Both(common=0, compared=[])
    kinds: Counter[str] = Counter()
    for number_a, number_b in both.compared:
        kinds.update(compare_rows(a[number_a], b[number_b]).kinds)
    images = {"only_a": len(a) - both.common, "only_b": len(b) - both.common, "both": both.common}
    settings = _settings(a.manifest.recipe.tables, b.manifest.recipe.tables)
    moved = sum(kinds[kind] for kind in KINDS if kind not in ("same", "neither"))
    return {
        "images": images,
        "compared": len(both.compared),
        "sentences": {kind: kinds[kind] for kind in KINDS},
        "settings": settings,
        "same": not (images["only_a"] or images["only_b"] or moved or settings),
    }


def _settings(a: Tables, b: Tables) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for table in {**a, **b}:
        first, second = a.get(table), b.get(table)
        if first is None or second is None:
            found[table] = [first, second]
        else:
            for key in {**first, **second}:
                found[f"{table}.{key}"] = [first.get(key), second.get(key)]
    return {key: values for key, values in found.items() if values[0] != values[1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Both:
    common: int
    compared: list[tuple[int, int]]


def _in_both(a: Dataset, b: Dataset, seed: int) -> _Both:
    """Row numbers of the images that both have."""
    numbers = []
    for dataset in (a, b):
        with connect(dataset) as connection:
            sql = f"SELECT sample_id, {NUMBER} FROM {numbered(dataset)}"
            numbers.append(connection.sql(sql).to_arrow_table())
    joined = numbers[0].join(numbers[1], "sample_id", right_suffix="_b", join_type="inner")
    if not joined.num_rows:
        raise InputError(
            f"{a.path} and {b.path} have no image in common; build both from the same images"
        )
    pairs = sorted(zip(joined[NUMBER].to_pylist(), joined[f"{NUMBER}_b"].to_pylist(), strict=True))
    if len(pairs) > MOST_COMPARED:
        chosen = np.random.default_rng(seed).choice(len(pairs), MOST_COMPARED, replace=False)
        pairs = [pairs[index] for index in sorted(chosen)]
    return _Both(common=joined.num_rows, compared=pairs)


def _side(dataset: Dataset) -> dict[str, Any]:
    with connect(dataset) as connection:
        return {
            **overview(dataset),
            "totals": totals(connection),
            "charts": charts(connection),
            "folder": Path(dataset.path).as_posix(),
        }


def _sample(a: Dataset, b: Dataset, at_a: int, at_b: int, found: Comparison) -> dict[str, Any]:
    row_a, row_b = a[at_a], b[at_b]
    image = thumbnail_url(row_a)
    return {
        "difference": round(found.difference, 4),
        "apart": [list(found.apart_a), list(found.apart_b)],
        "sides": [
            sample(row_a, number=at_a, image=image),
            {**sample(row_b, number=at_b, image=""), "image_of": 0},
        ],
    }
