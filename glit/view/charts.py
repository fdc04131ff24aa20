"""Compute charts and figures of the report page over the whole dataset, without images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from glit.dataset.reader import Dataset
from glit.dataset.statistics import (
    PAPER_COLUMNS,
    beside_papers,
    dataset_statistics,
    lines,
    tokens_note,
)
from glit.storage.store import Store
from glit.view.histogram import histogram

MOST_LABELS = 2000
"""Labels that the page offers; any other can be typed."""

_WORD = r"[^\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""Pattern of the words that ``str.split`` leaves, for DuckDB's regular expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A distribution of one number."""

    name: str
    title: str
    thing: str
    """Name of the things that are counted, in the plural."""
    sql: str
    """Gives the numbers, one a row, in a column ``value``."""
    step: float = 1
    """To which the numbers are rounded."""
    percent: bool = False
    note: str = ""


CHARTS = (
    Chart(
        name="words", title="Words in a caption", thing="captions",
        sql=f"SELECT len(regexp_extract_all(caption, '{_WORD}')) AS value FROM samples",
    ),
    Chart(
        name="sentences", title="Sentences in a caption", thing="captions",
        sql="SELECT len(sentences) AS value FROM samples",
    ),
    Chart(
        name="regions", title="Regions in an image", thing="images",
        sql="SELECT len(regions) AS value FROM samples",
    ),
    Chart(
        name="similarity", title="Similarity of the pairs", thing="pairs", step=0.005,
        sql="SELECT similarity AS value FROM pairs WHERE NOT global_wins",
        note="cosine of a sentence and its region",
    ),
    Chart(
        name="probability", title="Probability of the pairs", thing="sentences", step=0.01,
        sql="SELECT probability AS value FROM pairs WHERE probability IS NOT NULL", percent=True,
        note="that the sentence describes the region, by the rule's calibration",
    ),
    Chart(
        name="support", title="Support of the sentences", thing="sentences", step=0.01,
        sql="SELECT support AS value FROM pairs WHERE support IS NOT NULL", percent=True,
        note="that the sentence is true of the image, by the rule's calibration",
    ),
    Chart(
        name="area", title="Area of the regions in pairs", thing="pairs", step=0.01,
        sql="""SELECT (p.x1 - p.x0) * (p.y1 - p.y0) / (s.width::DOUBLE * s.height) AS value
               FROM pairs p JOIN samples s USING (sample_id) WHERE NOT p.global_wins""",
        percent=True, note="share of the image's area",
    ),
)  # fmt: skip


def charts(
    connection: duckdb.DuckDBPyConnection, wanted: Sequence[Chart] = CHARTS
) -> list[dict[str, Any]]:
    """Compute every distribution that the dataset has numbers for."""
    found = []
    for chart in wanted:
        counted = connection.execute(
            f"""SELECT round(value / {chart.step})::BIGINT AS bin, count(*) FROM ({chart.sql})
                WHERE isfinite(value::DOUBLE) GROUP BY bin ORDER BY bin"""
        ).fetchall()
        values = [(number * chart.step, count) for number, count in counted]
        made = histogram(values, smallest_step=chart.step)
        if made is not None:
            about = {"name": chart.name, "title": chart.title, "thing": chart.thing,
                     "percent": chart.percent, "note": chart.note}  # fmt: skip
            found.append(about | dataclasses.asdict(made) | {"constant": len(values) == 1})
    return found


def sources(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Count each proposer's regions, and the pairs that use them."""
    rows = connection.execute(
        """SELECT source, sum(regions)::BIGINT, sum(pairs)::BIGINT FROM (
               SELECT source, 1 AS regions, 0 AS pairs FROM regions
               UNION ALL SELECT source, 0, 1 FROM pairs WHERE NOT global_wins)
           GROUP BY source ORDER BY 2 DESC, source"""
    ).fetchall()
    return [{"source": name, "regions": regions, "pairs": pairs} for name, regions, pairs in rows]


def labels(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Count the pairs of each region label, the most frequent :data:`MOST_LABELS` first."""
    rows = connection.execute(
        f"""SELECT label, count(*) FROM pairs WHERE NOT global_wins AND label <> ''
            GROUP BY label ORDER BY 2 DESC, label LIMIT {MOST_LABELS}"""
    ).fetchall()
    return [{"label": name, "pairs": pairs} for name, pairs in rows]


def figures(dataset: Dataset) -> dict[str, Any]:
    """The dataset's statistics, and its means above those of papers, as rows of two tables."""
    found = dataset_statistics(Store(dataset.path), dataset.manifest)
    return {
        "lines": lines(found)[:-1],  # a chart shows the captions by sentences
        "columns": PAPER_COLUMNS,
        "papers": beside_papers(found),
        "note": f"Words are split at white space. {tokens_note(found)}",
    }


def totals(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count images, sentences, regions, pairs, and sentences without a region."""
    row = connection.execute(
        """SELECT count(*), sum(len(sentences))::BIGINT, sum(len(regions))::BIGINT,
                  sum(len(list_filter(pairs, lambda p: NOT p.global_wins)))::BIGINT
           FROM samples"""
    ).fetchone()
    assert row is not None
    images, sentences, regions, pairs = row
    return {"images": images, "sentences": sentences, "regions": regions, "pairs": pairs,
            "without": sentences - pairs}  # fmt: skip
