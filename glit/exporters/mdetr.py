"""``mdetr``: captions with the spans of their regions, for MDETR and related models.

    images/NAME.jpg
    annotations.json    COCO's layout; an image has its ``caption``, and ``captions`` where the
                        dataset has several; an annotation has its
                        ``tokens_positive``: characters [start, end) of the caption

An annotation is a region that some sentence has, or, in a dataset with a grounder, in which some
phrase was found; several of them give it several spans.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glit.exporters.json_file import JsonFile
from glit.exporters.parts import PictureFolder, grounded_of, local_of, several_of, xywh

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report


def export_mdetr(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as MDETR's JSON files and images."""
    (folder / "images").mkdir()
    pictures = PictureFolder(dataset, folder / "images")
    number = 0
    with JsonFile(folder / "annotations.json", "images", "annotations", "categories") as file:
        file.add("categories", {"id": 1, "name": "object", "supercategory": "object"})
        for image_id, row in enumerate(dataset, start=1):
            name = pictures.write(row)
            spans: dict[int, list[list[int]]] = {}
            for region, span in _spans(row):
                spans.setdefault(region, []).append(span)
            file.add(
                "images",
                {"id": image_id, "file_name": name, "width": row.width, "height": row.height,
                 "caption": row.caption.text, "dataset_name": "glit",
                 "tokens_negative": [[0, len(row.caption.text)]], **several_of(row)},
            )  # fmt: skip
            for region, positive in spans.items():
                number += 1
                box = row.regions[region]
                file.add(
                    "annotations",
                    {"id": number, "image_id": image_id, "category_id": 1, "iscrowd": 0,
                     "bbox": xywh(box), "area": box.box.area_px,
                     "tokens_positive": sorted(positive)},
                )  # fmt: skip
            report(1)


def _spans(row: Row) -> list[tuple[int, list[int]]]:
    """Regions and the characters that tell of each, phrases or else sentences."""
    grounded = grounded_of(row)
    if grounded is not None:
        return [(each.region, each.span) for each in grounded]
    return [(local.pair.region, local.span) for local in local_of(row)]
