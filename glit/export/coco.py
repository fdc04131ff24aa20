"""``coco``: JSON as of COCO's detection and caption tasks, for pycocotools and all that read it.

    images/SAMPLE_ID.jpg
    instances.json    every region: ``bbox`` [x, y, width, height] in pixels, ``category_id``
    captions.json     every caption

A region's category is its label. What COCO has no field for stands beside ``bbox``: ``score``,
``source``, and ``sentences``: those that have this region as their pair, best pair first, with
their span in the caption.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.export.json_file import JsonFile

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.records import Region

NO_LABEL = "region"
"""The category of regions without a label, as SAM's are."""

_DECIMALS = 4
"""Of pixels; a box is stored in float32."""


def export_coco(dataset: Dataset, folder: Path) -> None:
    """See :data:`glit.export.Exporter`."""
    from glit.images import upright_file

    (folder / "images").mkdir()
    categories: dict[str, int] = {}
    number = 0
    with (
        JsonFile(folder / "instances.json", "images", "annotations", "categories") as instances,
        JsonFile(folder / "captions.json", "images", "annotations") as captions,
    ):
        for image_id, row in enumerate(dataset, start=1):
            data, suffix = upright_file(row.encoded())
            name = f"{row.sample_id}{suffix}"
            (folder / "images" / name).write_bytes(data)
            image = {"id": image_id, "file_name": name, "width": row.width, "height": row.height,
                     "source_path": row.source_path}  # fmt: skip
            instances.add("images", image)
            captions.add("images", image)
            caption = {"id": image_id, "image_id": image_id, "caption": row.caption.text}
            captions.add("annotations", caption)
            for region, sentences in zip(row.regions, _sentences(row), strict=True):
                number += 1
                label = region.label or NO_LABEL
                category = categories.setdefault(label, len(categories) + 1)
                place = {"id": number, "image_id": image_id, "category_id": category}
                instances.add("annotations", place | _box(region) | {"sentences": sentences})
        for label, category in categories.items():
            instances.add("categories", {"id": category, "name": label, "supercategory": ""})


def _box(region: Region) -> dict[str, Any]:
    x0, y0, x1, y1 = region.box.xyxy
    return {
        "bbox": [round(value, _DECIMALS) for value in (x0, y0, x1 - x0, y1 - y0)],
        "area": round(region.box.area_px, _DECIMALS),
        "iscrowd": 0,
        "score": region.score,
        "source": region.source,
    }


def _sentences(row: Row) -> Iterator[list[dict[str, Any]]]:
    """For every region, the sentences that have it as their local pair."""
    for region in range(len(row.regions)):
        pairs = [pair for pair in row.pairs if pair.region == region and not pair.global_wins]
        yield [
            {
                "char_start": row.sentences[pair.sentence].char_start,
                "char_end": row.sentences[pair.sentence].char_end,
                "similarity": pair.similarity,
            }
            for pair in pairs
        ]
