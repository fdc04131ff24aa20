"""The whole flow on test scenes: does the region glit chose for a sentence show what it tells of?

Builds with the ``mini`` recipe, as ``glit build`` does, and compares the dataset with the truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from glit.bench.scenes import build_scenes
from glit.data.geometry import iou
from glit.dataset.row import Row
from glit.scenes import draw_scene, write_scenes
from glit.scenes.told import objects_told, true_of
from tools.mini.evaluate import IOU, TEST_SEED


def flow_figures(folder: Path, num: int) -> dict[str, float]:
    """Both whole-flow rows of the report, on the first ``num`` normal test scenes."""
    write_scenes(folder, num=num, seed=TEST_SEED)
    truth = pq.read_table(folder / "ground_truth.parquet").to_pylist()
    by_path = {row["path"]: row for row in truth}
    hits: list[bool] = []
    for row in _rows(folder, "own", captions=folder / "captions.jsonl"):
        hits += _own_captions(row, by_path[row.source_path])
    told: list[tuple[bool, bool]] = []
    for row in _rows(folder, "captioned", captions=None):
        told += _mini_captions(row, by_path[row.source_path])
    true = [right_region for is_true, right_region in told if is_true]
    return {
        "own_right_region": float(np.mean(hits)),
        "mini_true_sentences": len(true) / max(1, len(told)),
        "mini_right_region": float(np.mean(true)) if true else 0.0,
    }


def _rows(folder: Path, name: str, *, captions: Path | None) -> list[Row]:
    """Of the dataset of the scenes, by captions of theirs or the mini captioner's."""
    return list(build_scenes(folder, folder / name, captions=captions).rows(images=False))


def _chosen_regions(row: Row) -> dict[int, np.ndarray]:
    """The box ``[1, 4]`` of the best region of each sentence."""
    return {p.sentence: np.array([row.regions[p.region].box.xyxy]) for p in row.pairs}


def _hits(chosen: np.ndarray | None, box: list[int]) -> bool:
    wanted = np.array([box], dtype=float)
    return chosen is not None and bool(iou(chosen, wanted)[0, 0] >= IOU)


def _own_captions(row: Row, truth: dict[str, Any]) -> list[bool]:
    """For every object sentence, whether the chosen region is its object's."""
    regions = _chosen_regions(row)
    chosen = {s.char_start: regions.get(number) for number, s in enumerate(row.sentences)}
    return [
        _hits(chosen.get(sentence["char_start"]), sentence["box"])
        for sentence in truth["sentences"]
        if sentence["kind"] == "object"
    ]


def _mini_captions(row: Row, truth: dict[str, Any]) -> list[tuple[bool, bool]]:
    """For every object sentence the captioner said, whether it is true and well placed."""
    scene = draw_scene(truth["seed"], truth["index"], level=truth["level"])
    box_at = {o.place: t["box"] for o, t in zip(scene.objects, truth["objects"], strict=True)}
    regions = _chosen_regions(row)
    outcomes: list[tuple[bool, bool]] = []
    for number, sentence in enumerate(row.sentences):
        for told in objects_told(sentence.text):
            is_true = true_of(told, scene)
            hit = is_true and _hits(regions.get(number), box_at[told.place])
            outcomes.append((is_true, hit))
    return outcomes
