"""Small published files without a fault, to plant some in."""

from __future__ import annotations

from typing import Any

SCENES = ("harbour", "meadow", "kitchen", "station", "library", "desert")


def caption(number: int) -> str:
    """A caption of an image, unlike those of the others.

    >>> caption(1)
    'A red kite flies over the meadow. Below it stand 1 boats and a green bench.'
    """
    return (
        f"A red kite flies over the {SCENES[number % len(SCENES)]}. "
        f"Below it stand {number} boats and a green bench."
    )


def odvg_rows() -> list[dict[str, Any]]:
    """Lines of ODVG without a fault."""
    return [
        {
            "filename": f"{number}.png", "width": 200, "height": 150,
            "grounding": {
                "caption": caption(number),
                "regions": [
                    {"bbox": [10, 12, 90, 80], "phrase": "A red kite", "tokens_positive": [[0, 10]]},
                    {"bbox": [120, 90, 190, 140], "phrase": "a green bench"},
                    {"bbox": [60, 100, 110, 145], "phrase": "boats"},
                ],
            },
        }
        for number in range(6)
    ]  # fmt: skip


def mdetr_values() -> dict[str, Any]:
    """MDETR's JSON of the same images."""
    rows, boxes = odvg_rows(), []
    for number, row in enumerate(rows):
        text = row["grounding"]["caption"]
        for region in row["grounding"]["regions"]:
            x0, y0, x1, y1 = region["bbox"]
            start = text.index(region["phrase"])
            boxes.append(
                {"image_id": number, "bbox": [x0, y0, x1 - x0, y1 - y0],
                 "tokens_positive": [[start, start + len(region["phrase"])]]}
            )  # fmt: skip
    entries = [
        {"id": n, "file_name": row["filename"], "caption": row["grounding"]["caption"],
         "width": 200, "height": 150}
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return {"images": entries, "annotations": boxes}
