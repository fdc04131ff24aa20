"""``odvg``: rows that MM-Grounding-DINO, LLMDet and Grounding DINO of NVIDIA TAO are trained on.

    images/NAME.jpg
    annotations.jsonl    a line an image: ``filename``, ``file_name``, ``height``, ``width``,
                         ``grounding`` with ``caption`` and ``regions``: ``bbox`` (xyxy pixels),
                         ``phrase``, ``tokens_positive`` (characters [start, end) of the caption);
                         and ``captions`` where images have several

TAO's loader takes ``file_name`` (nvidia_tao_pytorch/cv/grounding_dino/dataloader/odvg.py), the
others ``filename``; they are equal.
Phrases where a grounder was asked for them, else the sentences that have a region.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.exporters.parts import PictureFolder, grounded_of, local_of, several_of

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report


def export_odvg(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as ODVG lines and images."""
    (folder / "images").mkdir()
    pictures = PictureFolder(dataset, folder / "images")
    with (folder / "annotations.jsonl").open("w", encoding="utf-8") as file:
        for row in dataset:
            name = pictures.write(row)
            line = {
                "filename": name,
                "file_name": name,
                "height": row.height,
                "width": row.width,
                "grounding": {"caption": row.caption.text, "regions": _regions(row)},
                **several_of(row),
            }
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            report(1)


def _regions(row: Row) -> list[dict[str, Any]]:
    grounded = grounded_of(row)
    if grounded is not None:
        found = [(row.regions[each.region], each.text, each.span) for each in grounded]
    else:
        found = [(local.region, local.sentence.text, local.span) for local in local_of(row)]
    return [
        {"bbox": list(region.box.xyxy), "phrase": text, "tokens_positive": [span]}
        for region, text, span in found
    ]
