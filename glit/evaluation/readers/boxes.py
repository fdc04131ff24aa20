"""Boxes with classes (COCO, LVIS) and boxes with expressions (RefCOCO, RefCOCO+, RefCOCOg)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glit.data.geometry import iou
from glit.errors import InputError
from glit.evaluation.encode import Box
from glit.evaluation.questions import ImagePart, Question, of_first_images
from glit.evaluation.readers.benchmark_file import BenchmarkFile
from glit.inputs.published.files import chosen_parts, plain_pickle

_MIN_IOU = 0.5
"""With the expression's own box, for another box to be right (RefCOCO's Acc@0.5)."""
_AFTERWORD = re.compile(r"\s*\(.*\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBoxes:
    """Boxes, each of one class."""

    parts: list[ImagePart]
    """The boxes, each with its image; those of an image follow each other."""
    class_of: list[int]
    """The place in ``classes`` of every box's class."""
    classes: list[tuple[str, ...]]
    """The names of every class, one or more."""


def class_boxes(annotations: Path, *, images: Path | None, limit: int = 0) -> ClassBoxes:
    """Read ``instances_val2017.json`` of COCO or ``lvis_v1_val.json``; crowds are left out.

    Raises:
        InputError: it is neither, or has no box.
    """
    folder = images or annotations.parent
    try:
        file = BenchmarkFile(annotations, folder)
        values = file.values
        numbers = {category["id"]: i for i, category in enumerate(values["categories"])}
        classes = [_names(category) for category in values["categories"]]
        found: list[tuple[Path, Box, int]] = [
            (path, box, numbers[each["category_id"]])
            for path, boxes in file.boxes()
            for each, box in boxes
            if not file.coco.is_crowd(each)
        ]
        found = [*of_first_images(sorted(found), limit, lambda each: each[0])]
        parts: list[ImagePart] = [(path, file.sizes.box(path, box)) for path, box, _ in found]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(
            f"{annotations}: not COCO's or LVIS's boxes ({type(error).__name__}: {error})"
        ) from error
    if not found:
        raise InputError(f"{annotations}: it has no box")
    file.sizes.warn(annotations)
    return ClassBoxes(
        parts=parts,
        class_of=[number for _, _, number in found],
        classes=classes,
    )


def expressions(
    annotations: Path, *, images: Path | None, split: str | None, limit: int = 0
) -> list[Question]:
    """Read RefCOCO's folder: ``instances.json`` and ``refs(unc).p`` or its like; a question for
    each expression, among all boxes of its image.

    Args:
        annotations: the folder, or the file of expressions in it.
        images: folder of COCO's train2014.
        split: parts, several joined by ``+``; default ``val``.
        limit: only the expressions of the first images, 0 for all.

    Raises:
        InputError: files are missing or not of that layout, or there is no such part.
    """
    folder = annotations if annotations.is_dir() else annotations.parent
    files = sorted(folder.glob("refs(*).p")) if annotations.is_dir() else [annotations]
    if len(files) != 1:
        raise InputError(f"{folder}: {len(files)} files refs(...).p; give the one that is meant")
    try:
        refs = plain_pickle(files[0].read_bytes())
        file = BenchmarkFile(folder / "instances.json", images or folder)
        known = sorted({ref["split"] for ref in refs})
        parts = chosen_parts(split, known, default="val")
        of_image = {
            image.entry["id"]: (path, {each["id"]: box for each, box in boxes})
            for image, (path, boxes) in zip(file.coco.images, file.boxes(), strict=True)
        }
        found = []
        for ref in sorted((r for r in refs if r["split"] in parts), key=lambda ref: ref["ref_id"]):
            path, boxes = of_image[ref["image_id"]]
            overlap = iou(np.array([boxes[ref["ann_id"]]]), np.array(list(boxes.values())))[0]
            right = frozenset(np.flatnonzero(overlap >= _MIN_IOU).tolist())
            candidates = tuple((path, file.sizes.box(path, box)) for box in boxes.values())
            for sentence in ref["sentences"]:
                found.append(
                    Question(parts=candidates, texts=(sentence["sent"],), right=right, kind="")
                )
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError) as error:
        raise InputError(
            f"{files[0]}: not RefCOCO's files as published ({type(error).__name__}: {error}); see "
            "docs/evaluation.md for the layout"
        ) from error
    file.sizes.warn(folder / "instances.json")
    return [*of_first_images(found, limit, lambda each: each.parts[0][0])]


def _names(category: dict[str, Any]) -> tuple[str, ...]:
    """The class's name and synonyms as words; LVIS tells some apart by a note in brackets."""
    names = category.get("synonyms") or [category["name"]]
    return tuple(
        dict.fromkeys(_AFTERWORD.sub("", name.replace("_", " ")).strip() or name for name in names)
    )
