"""``coco``: JSON in the layout of COCO's detection and caption tasks.

    images/NAME.jpg
    instances.json    every region: ``bbox`` [x, y, width, height] in pixels, ``category_id``
    captions.json     every caption

A region's category is its label, or "region" for one without a label and for cells of the grid; one
whose mask was kept (``propose.keep_masks``) has COCO's
compressed run lengths as ``segmentation``, any other ``[]``.
What COCO has no field for stands beside ``bbox``:
``score``, ``source``, and ``sentences``: those that have this region as their pair, best pair
first, with their span in the caption.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.data.rle import read_rle, rle_area
from glit.dataset.row import captions_of, masks_of
from glit.exporters.json_file import JsonFile
from glit.exporters.parts import PictureFolder, category_of, local_of, xywh

if TYPE_CHECKING:
    from glit.data.records import Region
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report

_FIRST = {"info": {"description": "exported by glit", "version": "1.0"}, "licenses": []}
"""Further keys that readers of COCO ask for."""

_DECIMALS = 4
"""Decimals of pixels; a box is stored in float32."""


def export_coco(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as COCO JSON files and images."""
    (folder / "images").mkdir()
    pictures = PictureFolder(dataset, folder / "images")
    categories: dict[str, int] = {}
    number = num_captions = 0
    with (
        JsonFile(
            folder / "instances.json", "images", "annotations", "categories", first=_FIRST
        ) as instances,
        JsonFile(folder / "captions.json", "images", "annotations", first=_FIRST) as captions,
    ):
        for image_id, row in enumerate(dataset, start=1):
            name = pictures.write(row)
            image = {"id": image_id, "file_name": name, "width": row.width, "height": row.height,
                     "source_path": row.source_path, "sample_id": row.sample_id}  # fmt: skip
            instances.add("images", image)
            captions.add("images", image)
            others = (each["text"] for each in captions_of(row))
            for text in dict.fromkeys([row.caption.text, *others]):
                num_captions += 1
                caption = {"id": num_captions, "image_id": image_id, "caption": text}
                captions.add("annotations", caption)
            sentences = _sentences(row)
            masks = masks_of(row)
            for at, region in enumerate(row.regions):
                number += 1
                label = category_of(region)
                category = categories.setdefault(label, len(categories) + 1)
                place = {"id": number, "image_id": image_id, "category_id": category}
                found = _box(region) | {"sentences": sentences.get(at, [])}
                if at in masks:
                    found |= _segmentation(masks[at], row)
                instances.add("annotations", place | found)
            report(1)
        for label, category in categories.items():
            instances.add("categories", {"id": category, "name": label, "supercategory": ""})


def _box(region: Region) -> dict[str, Any]:
    return {
        "bbox": [round(value, _DECIMALS) for value in xywh(region)],
        "segmentation": [],
        "area": round(region.box.area_px, _DECIMALS),
        "iscrowd": 0,
        "score": region.score,
        "source": region.source,
    }


def _segmentation(counts: str, row: Row) -> dict[str, Any]:
    area = rle_area(read_rle(counts, height=row.height, width=row.width))
    return {"segmentation": {"size": [row.height, row.width], "counts": counts}, "area": area}


def _sentences(row: Row) -> dict[int, list[dict[str, Any]]]:
    """Return by region the sentences that have it as their local pair, best first."""
    found: dict[int, list[dict[str, Any]]] = {}
    for local in local_of(row):
        start, end = local.span
        found.setdefault(local.pair.region, []).append(
            {"char_start": start, "char_end": end, "similarity": local.pair.similarity}
        )
    return found
