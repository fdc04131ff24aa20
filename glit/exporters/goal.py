"""``goal``: the list that GOAL's published trainer reads, with the image crops.

    images/NAME.jpg
    segments/SAMPLE_ID_RANK.png    what a sentence has, cut out, best pair first
    goal.json                      ``original_filename``, ``original_caption`` and ``segment``: for
                                   every pair ``filename``, ``caption``, ``similarity_score`` and
                                   ``bbox_coordinates``; ``captions`` where images have
                                   several, which that trainer does not read
    without-pairs.txt              images with no pair, which that trainer cannot take

Names are relative to this folder, so train from within it. ``width`` and ``height`` beside a box
are those of the whole image, by which the trainer scales it; the lists that GOAL published have
the crop's there. Of the pairs the trainer takes the one of the highest cosine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.exporters.parts import LocatedSentence, PictureFolder, crop, local_of, several_of

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report


def export_goal(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as GOAL's training list and image crops."""
    (folder / "images").mkdir()
    pictures = PictureFolder(dataset, folder / "images")
    (folder / "segments").mkdir()
    comma = "\n"
    with (
        (folder / "goal.json").open("w", encoding="utf-8") as file,
        (folder / "without-pairs.txt").open("w", encoding="utf-8") as without,
    ):
        file.write("[")
        for row in dataset:
            report(1)
            pairs = local_of(row)
            if not pairs:
                without.write(f"{row.source_path}\n")
                continue
            entry = {
                "original_filename": f"images/{pictures.write(row)}",
                "original_caption": row.caption.text,
                **several_of(row),
                "segment": [_segment(row, each, rank, folder) for rank, each in enumerate(pairs)],
            }
            file.write(comma + json.dumps(entry, ensure_ascii=False, allow_nan=False))
            comma = ",\n"
        file.write("\n]\n")


def _segment(row: Row, local: LocatedSentence, rank: int, folder: Path) -> dict[str, Any]:
    name = f"segments/{row.sample_id}_{rank}.png"
    (folder / name).write_bytes(crop(row, local.region))
    x0, y0, x1, y1 = local.region.box.xyxy
    return {
        "filename": name,
        "caption": local.sentence.text,
        "similarity_score": 100 * local.pair.similarity,
        "bbox_coordinates": {"x1": x0, "y1": y0, "x2": x1, "y2": y1,
                             "width": row.width, "height": row.height},
    }  # fmt: skip
