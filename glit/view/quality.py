"""Histograms of the measures of ``[quality]``, with their thresholds and the pictures nearest to
them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from glit.dataset.manifest import RecordedRecipe
from glit.dataset.query import NUMBER, numbered
from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import RecipeError
from glit.images import ImageError
from glit.images.thumbnails import data_url, thumbnail
from glit.stages.quality import QualityConfig, QualityStage
from glit.view.charts import Chart, charts
from glit.view.originals import Originals

_PICTURES = 5
"""On each side of a threshold."""
_SIDE, _BYTES = 200, 6 << 10
_LEAST_SHARPNESS = 0.1
_CHARTS = tuple(
    Chart(name=name, title=name.capitalize(), thing="images", step=step, sql="", note=note)
    for name, step, note in (
        ("sharpness", 0.05, "variance of the Laplacian"),
        ("brightness", 0.01, "mean grey value"),
        ("contrast", 0.01, "standard deviation of grey values"),
        ("entropy", 0.05, "bits of a grey value"),
        ("aspect", 0.05, "longer side over the shorter one"),
        ("text", 0.01, "share of the area that looks like text"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A threshold of a score."""

    value: float
    is_least: bool
    """True if images with a lower score are dropped; else those with a higher one."""


def quality(dataset: Dataset, connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The histogram of every measure, its thresholds, and pictures on both sides.

    Images that the stage dropped count with the value that their message tells.

    Args:
        dataset: with the column ``quality``.
        connection: with the dataset's views.
    """
    limits = _limits(dataset.manifest.recipe)
    rejected = {name: line for name, line in limits.items() if name not in _names()}
    labels = [
        Chart(name=name, title=name, thing="images", step=0.01, sql="", note="score of the label")
        for name in rejected
    ]
    pictures = _Pictures(dataset, connection)
    found = []
    for chart in (*_CHARTS, *labels):
        values = _values(chart.name, is_label=chart.name in rejected)
        is_log = chart.name == "sharpness"
        shown = f"log10(greatest(value, {_LEAST_SHARPNESS}))" if is_log else "value"
        sql = f"SELECT {shown} AS value FROM ({values.format(source='samples', number='0')})"
        for made in charts(connection, [dataclasses.replace(chart, sql=sql)]):
            lines = limits.get(chart.name, [])
            places = [
                math.log10(max(line.value, _LEAST_SHARPNESS)) if is_log else line.value
                for line in lines
            ]
            sides = list(pictures.of(values, lines)) if lines or not made["constant"] else []
            found.append(made | {"log": is_log, "lines": places, "sides": sides})
    return found


def _names() -> set[str]:
    return {chart.name for chart in _CHARTS}


def _limits(recipe: RecordedRecipe) -> dict[str, list[_Line]]:
    """Thresholds that drop anything, by measure or label; of a recipe of another glit none."""
    try:
        config = recipe.config(QualityStage.name, QualityConfig)
    except RecipeError:
        return {}
    none = QualityConfig().limits()
    found: dict[str, list[_Line]] = {}
    for name, (least, most) in config.limits().items():
        low, high = none[name]
        found[name] = [_Line(value=least, is_least=True)] * (least != low)
        found[name] += [_Line(value=most, is_least=False)] * (most != high)
    for label, score in config.rejected().items():
        found[label] = [_Line(value=score, is_least=False)]
    return found


def _values(name: str, *, is_label: bool) -> str:
    """SQL of all values of a measure: of the samples, and of those that it dropped."""
    text = name.replace("'", "''").replace("{", "{{").replace("}", "}}")
    own = f"quality.{name}"
    if is_label:
        own = f"list_filter(quality.labels, lambda l: l.label = '{text}')[1].score"
    said = f"split_part(substr(message, {len(name) + 2}), ',', 1)"
    return f"""
        SELECT {own}::DOUBLE AS value, {{number}} AS number, sample_id, source_path, '' AS message
        FROM {{source}}
        UNION ALL
        SELECT try_cast({said} AS DOUBLE), -1, sample_id, source_path, message FROM drops
        WHERE stage = 'quality' AND reason = 'low_quality' AND starts_with(message, '{text} ')"""


class _Pictures:
    """Pictures of samples and of dropped images, by their values."""

    def __init__(self, dataset: Dataset, connection: duckdb.DuckDBPyConnection) -> None:
        self._dataset, self._connection = dataset, connection
        columns = ("sample_id", "source_path", "image")
        self._groups = RowGroupCache(dataset, capacity=8, columns=columns)
        self._originals = Originals.of(dataset.path, dataset.image_root)

    def of(self, values: str, lines: list[_Line]) -> Iterator[dict[str, Any]]:
        """Yield the images nearest below and above every threshold; without one, the lowest and
        highest."""
        for line in lines:
            dropped = "number < 0" if line.is_least else "number >= 0"
            below = f"(value < {line.value} OR (value = {line.value} AND {dropped}))"
            for title, where, order in (
                (f"Nearest below {line.value:g}", below, "DESC"),
                (f"Nearest above {line.value:g}", f"NOT {below}", ""),
            ):
                yield {"title": title, "images": self._some(values, where, order)}
        if not lines:
            for title, order in (("Lowest", ""), ("Highest", "DESC")):
                yield {"title": title, "images": self._some(values, "true", order)}

    def _some(self, values: str, where: str, order: str) -> list[dict[str, Any]]:
        all_values = values.format(source=numbered(self._dataset), number=NUMBER)
        rows = self._connection.execute(
            f"""SELECT number, value, sample_id, source_path, message FROM ({all_values})
                WHERE isfinite(value) AND {where}
                ORDER BY value {order}, source_path LIMIT {_PICTURES}"""
        ).fetchall()
        return [
            {"path": path, "value": value, "message": message,
             "image": self._picture(number, sample_id, path)}
            for number, value, sample_id, path, message in rows
        ]  # fmt: skip

    def _picture(self, number: int, sample_id: str, path: str) -> str:
        if number < 0:
            return self._originals.picture(path, sample_id or "", max_side=_SIDE, max_bytes=_BYTES)
        group, row = self._dataset.locate(number)
        try:
            encoded = self._groups.get(group).image(row)
            return data_url(thumbnail(encoded, max_side=_SIDE, max_bytes=_BYTES))
        except ImageError:
            return ""
