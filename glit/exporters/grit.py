"""``grit``: rows in the layout of GRIT, with whole sentences as expressions.

    images/NAME.jpg
    grit-00000.parquet    a row an image: ``key`` names its picture, ``caption``, ``width``,
                          ``height``, and ``ref_exps``: [start, end, x0, y0, x1, y1, score], the
                          box as shares of width and height, best pair first; ``noun_chunks``:
                          the same of phrases, where a grounder was asked for them; and
                          ``captions`` where images have several

The score of an expression is the cosine, that of a chunk the grounder's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glit.data.schema import CAPTIONS, has_captions
from glit.dataset.row import captions_of
from glit.exporters.parts import PictureFolder, grounded_of, local_of, write_tables

if TYPE_CHECKING:
    from glit.data.records import Region
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
    rows = _rows(dataset, PictureFolder(dataset, folder / "images"), report)
    several = has_captions(dataset.schema)
    schema = _SCHEMA.append(pa.field(*CAPTIONS)) if several else _SCHEMA
    write_tables(rows, schema, folder, "grit", rows_a_group=_ROWS_A_GROUP)


def _rows(dataset: Dataset, pictures: PictureFolder, report: Report) -> Iterator[dict[str, Any]]:
    for row in dataset:
        yield {
            "key": row.sample_id,
            "file_name": f"images/{pictures.write(row)}",
            "caption": row.caption.text,
            "width": row.width,
            "height": row.height,
            "noun_chunks": [
                [*map(float, each.span), *_shares(row, row.regions[each.region]), each.score]
                for each in grounded_of(row) or ()
            ],
            "ref_exps": _expressions(row),
            CAPTIONS[0]: captions_of(row),
        }
        report(1)


def _expressions(row: Row) -> list[list[float]]:
    return [
        [*map(float, local.span), *_shares(row, local.region), local.pair.similarity]
        for local in local_of(row)
    ]


def _shares(row: Row, region: Region) -> list[float]:
    """The box as shares of width and height."""
    size = (row.width, row.height, row.width, row.height)
    return [edge / side for edge, side in zip(region.box.xyxy, size, strict=True)]
