"""The whole flow on test scenes: does the region glit chose for a sentence show what it tells of?

Builds with the ``mini`` recipe, as ``glit build`` does, and compares the dataset with the truth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from glit.bench.scenes import RIGHT_IOU, XYXY, build_scenes, judge, truths
from glit.data.geometry import iou
from glit.dataset.row import Row
from glit.scenes import draw_scene, write_scenes
from glit.scenes.told import objects_told, true_of
from tools.mini.evaluate import TEST_SEED


def flow_figures(folder: Path, num: int) -> dict[str, float]:
    """Both whole-flow rows of the report, on the first ``num`` normal test scenes."""
    write_scenes(folder, num=num, seed=TEST_SEED)
    file = folder / "ground_truth.parquet"
    own = build_scenes(folder, folder / "own", captions=folder / "captions.jsonl")
    rows, truth = list(own.rows(images=False)), truths(file)
    judged = judge(rows, [_chosen(row) for row in rows], [truth[row.source_path] for row in rows])
    by_path = {row["path"]: row for row in pq.read_table(file).to_pylist()}
    told: list[tuple[bool, bool]] = []
    for row in build_scenes(folder, folder / "captioned", captions=None).rows(images=False):
        painted = by_path[row.source_path]
        scene = draw_scene(painted["seed"], painted["index"], level=painted["level"])
        boxes = [each["box"] for each in painted["objects"]]
        box_at = {o.place: box for o, box in zip(scene.objects, boxes, strict=True)}
        for sentence, box in zip(row.sentences, _chosen(row), strict=True):
            for each in objects_told(sentence.text):
                is_true = true_of(each, scene)
                told.append(
                    (is_true, is_true and box is not None and _hits(box, box_at[each.place]))
                )
    true = [hit for is_true, hit in told if is_true]
    return {
        "own_right_region": judged["right"],
        "mini_true_sentences": len(true) / max(1, len(told)),
        "mini_right_region": float(np.mean(true)) if true else 0.0,
    }


def _chosen(row: Row) -> list[XYXY | None]:
    """The box of the best region of each sentence."""
    best = {pair.sentence: row.regions[pair.region].box.xyxy for pair in row.pairs}
    return [best.get(number) for number in range(len(row.sentences))]


def _hits(box: XYXY | None, wanted: list[int]) -> bool:
    pair = np.array([box], dtype=float), np.array([wanted], dtype=float)
    return box is not None and bool(iou(*pair)[0, 0] >= RIGHT_IOU)
