"""Scenes and datasets of them for the measurements, made where they are not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glit.api import build
from glit.data.geometry import iou
from glit.data.parquet import read_parquet_file
from glit.data.records import Sample
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.scenes.write import write_scenes

XYXY = tuple[float, float, float, float]
Truth = dict[int, XYXY]
"""The box of the object that a sentence of a scene is about, in pixels, by the sentence's first
character."""
RIGHT_IOU = 0.5
"""A sentence about an object is *right* when the region chosen for it overlaps the object's box
with this IoU or more. LISM gives no region where the whole image matches best; such a sentence is
not right, and counts as a global win."""


def paint(folder: Path, **how: Any) -> Path:
    """The folder, with scenes painted by :func:`write_scenes` if they are not there."""
    if not (folder / "ground_truth.parquet").exists():
        write_scenes(folder, **how)
    return folder


def build_scenes(
    scenes: Path,
    dataset: Path,
    *,
    captions: Path | None,
    recipe: str = "mini",
    settings: Sequence[str] = (),
) -> Dataset:
    """The dataset of scenes, built if it is not there.

    Args:
        scenes: their folder.
        dataset: folder of the dataset.
        captions: whose; None for those of the mini captioner.
        recipe: of the build.
        settings: ``table.key=value``.
    """
    return build(
        scenes / "images", dataset, recipe=recipe, captions=captions, settings=settings,
        executor="local", quiet=True,
    )  # fmt: skip


def truths(ground_truth: Path) -> dict[str, Truth]:
    """Return each scene's boxes of the objects that its sentences describe, by the scene's path."""
    rows = read_parquet_file(ground_truth, columns=["path", "sentences"]).to_pylist()
    return {
        row["path"]: {
            each["char_start"]: tuple(each["box"])
            for each in row["sentences"]
            if each["kind"] == "object"
        }
        for row in rows
    }


def judge(
    samples: Sequence[Sample | Row],
    choices: Sequence[Sequence[XYXY | None]],
    truth: Sequence[Truth],
) -> dict[str, Any]:
    """Share of the sentences about an object whose chosen region is right (an IoU of at least
    :data:`RIGHT_IOU`), and what else tells of the choice; shares are 0 to 1.

    Args:
        samples: with sentences.
        choices: for each sample the chosen box of each sentence; None where there is none.
        truth: for each sample the true box of each sentence about an object.
    """
    overlaps: list[float] = []
    objects = wins = total = 0
    for sample, boxes, true in zip(samples, choices, truth, strict=True):
        starts = [sentence.char_start for sentence in sample.sentences or ()]
        chosen = dict(zip(starts, boxes, strict=True))
        total += len(boxes)
        wins += sum(box is None for box in boxes)
        objects += len(true)
        for start, wanted in true.items():
            if (box := chosen.get(start)) is not None:
                pair = np.array([box], dtype=float), np.array([wanted], dtype=float)
                overlaps.append(float(iou(*pair)[0, 0]))
    return {
        "num_object_sentences": objects,
        "right": sum(overlap >= RIGHT_IOU for overlap in overlaps) / max(1, objects),
        "mean_iou": float(np.mean(overlaps)) if overlaps else 0.0,
        "global_wins": wins / max(1, total),
        "global_wins_object": (objects - len(overlaps)) / max(1, objects),
    }
