"""Scenes and datasets of them for the measurements, made where they are not there."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glit.api import build
from glit.dataset.reader import Dataset
from glit.scenes.write import write_scenes

SHARE = 0.25
"""Of the sentences, those that tell of background and light or are remarks."""
_LOCAL = ("object", "relation")


def paint(folder: Path, **how: Any) -> Path:
    """The folder, with scenes painted by :func:`write_scenes` if they are not there."""
    if not (folder / "ground_truth.parquet").exists():
        write_scenes(folder, **how)
    return folder


def scenes_folder(output: Path, level: str, seed: int, num: int) -> Path:
    """The folder of these scenes, painted if they are not there."""
    return paint(output / "scenes" / f"{level}-{seed}-{num}", num=num, seed=seed, level=level)


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


def write_few_remarks(ground_truth: Path, out: Path, *, seed: int) -> None:
    """Write ``captions.jsonl`` and ``ground_truth.parquet`` with shorter captions into ``out``.

    They hold as few general remarks as captions of photographs do. Of the 1,999 local pairs of
    GOAL's published joint test file 211 are the whole image, and about one in six of the others
    tells of nothing local (read one by one, sixty of them): a quarter in all. In captions of scenes
    it is nearly half.

    Args:
        ground_truth: of the scenes.
        out: a folder; it is made.
        seed: decides which remarks stay; as many as make up a quarter of a caption on average.
    """
    table = pq.read_table(ground_truth)
    draw = random.Random(seed)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (out / "captions.jsonl").open("w", encoding="utf-8") as captions:
        for row in table.to_pylist():
            told = row["sentences"]
            local = sum(each["kind"] in _LOCAL for each in told)
            odds = min(1.0, local * SHARE / (1 - SHARE) / max(1, len(told) - local))
            kept = [each for each in told if each["kind"] in _LOCAL or draw.random() < odds]
            start = 0
            for each in kept:
                each["char_start"], each["char_end"] = start, start + len(each["text"])
                start = each["char_end"] + 1
            caption = " ".join(each["text"] for each in kept)
            captions.write(json.dumps({"path": row["path"], "caption": caption}) + "\n")
            rows.append({**row, "caption": caption, "sentences": kept})
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), out / "ground_truth.parquet")
