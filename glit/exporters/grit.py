"""``grit``: rows in the layout of GRIT, with whole sentences as expressions.

    images/SAMPLE_ID.jpg
    grit-00000.parquet    a row an image: ``key`` names its picture, ``caption``, ``width``,
                          ``height``, and ``ref_exps``: [start, end, x0, y0, x1, y1, score], the
                          box as shares of width and height, best pair first

``noun_chunks`` is there and empty: glit grounds sentences. The score is the cosine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glit.exporters.parts import local_of, write_picture, write_tables

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report

_ROWS_A_GROUP = 1000
"""The pictures lie beside, so a row is small."""
_SPANS = pa.list_(pa.list_(pa.float64()))
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("file_name", pa.string()),
        ("caption", pa.string()),
        ("width", pa.int64()),
        ("height", pa.int64()),
        ("noun_chunks", _SPANS),
        ("ref_exps", _SPANS),
    ]
)


def export_grit(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as GRIT rows."""
    (folder / "images").mkdir()
    rows = _rows(dataset, folder / "images", report)
    write_tables(rows, _SCHEMA, folder, "grit", rows_a_group=_ROWS_A_GROUP)


def _rows(dataset: Dataset, images: Path, report: Report) -> Iterator[dict[str, Any]]:
    for row in dataset:
        yield {
            "key": row.sample_id,
            "file_name": f"images/{write_picture(row, images)}",
            "caption": row.caption.text,
            "width": row.width,
            "height": row.height,
            "noun_chunks": [],
            "ref_exps": _expressions(row),
        }
        report(1)


def _expressions(row: Row) -> list[list[float]]:
    size = (row.width, row.height, row.width, row.height)
    return [
        [
            *map(float, local.span),
            *(edge / side for edge, side in zip(local.region.box.xyxy, size, strict=True)),
            local.pair.similarity,
        ]
        for local in local_of(row)
    ]
