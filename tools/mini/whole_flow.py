"""The whole flow on test scenes: does the region glit chose for a sentence show what it tells of?

Builds with the ``mini`` recipe, as ``glit build`` does, and compares the dataset with the truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console

from glit.executors.local import LocalExecutor
from glit.pipeline.run import BuildRequest, build
from glit.runtime.progress import StageProgress
from glit.scenes import Scene, draw_scene, write_scenes
from glit.scenes.told import objects_told, true_of
from glit.stages.recipe import load_recipe
from tools.mini.evaluate import IOU, TEST_SEED, iou_matrix


def build_dataset(folder: Path, *, own_captions: bool) -> list[dict[str, Any]]:
    """Rows of the dataset ``glit build`` makes of the scenes in ``folder``.

    :param own_captions: bring the scenes' own captions instead of the mini captioner's
    """
    output = folder / ("own" if own_captions else "captioned")
    request = BuildRequest(
        images=str(folder / "images"),
        output=str(output),
        recipe=load_recipe("mini", overrides=["caption.backend=provided"] if own_captions else []),
        captions=str(folder / "captions.jsonl") if own_captions else None,
    )
    executor = LocalExecutor()
    try:
        build(request, executor, StageProgress(Console(quiet=True), quiet=True))
    finally:
        executor.close()
    columns = ["source_path", "caption", "sentences", "regions", "pairs"]
    return ds.dataset(output / "data").to_table(columns=columns).to_pylist()


def flow_figures(folder: Path, num: int) -> dict[str, float]:
    """Both whole-flow rows of the report, on the first ``num`` normal test scenes."""
    write_scenes(folder, num=num, seed=TEST_SEED)
    truth = pq.read_table(folder / "ground_truth.parquet").to_pylist()
    by_path = {row["path"]: row for row in truth}
    own = [
        _own_captions(r, by_path[r["source_path"]])
        for r in build_dataset(folder, own_captions=True)
    ]
    result = {"own_right_region": float(np.mean([hit for row in own for hit in row]))}
    told = [
        outcome
        for row in build_dataset(folder, own_captions=False)
        for outcome in _mini_captions(row, by_path[row["source_path"]])
    ]
    true = [right_region for is_true, right_region in told if is_true]
    return result | {
        "mini_true_sentences": len(true) / max(1, len(told)),
        "mini_right_region": float(np.mean(true)) if true else 0.0,
    }


def _chosen_regions(row: dict[str, Any]) -> dict[int, np.ndarray]:
    """The box ``[4]`` of the best region of each sentence."""
    boxes = [[r["x0"], r["y0"], r["x1"], r["y1"]] for r in row["regions"]]
    return {pair["sentence"]: np.array(boxes[pair["region"]]) for pair in row["pairs"]}


def _hits(chosen: np.ndarray, box: list[int]) -> bool:
    return bool(iou_matrix(chosen[None], np.array([box], dtype=float))[0, 0] >= IOU)


def _own_captions(row: dict[str, Any], truth: dict[str, Any]) -> list[bool]:
    """For every object sentence, whether the chosen region is its object's."""
    regions = _chosen_regions(row)
    number_at = {s["char_start"]: i for i, s in enumerate(row["sentences"])}
    return [
        number_at.get(sentence["char_start"]) in regions
        and _hits(regions[number_at[sentence["char_start"]]], sentence["box"])
        for sentence in truth["sentences"]
        if sentence["kind"] == "object"
    ]


def _mini_captions(row: dict[str, Any], truth: dict[str, Any]) -> list[tuple[bool, bool]]:
    """For every object sentence the captioner said, whether it is true and well placed."""
    scene = draw_scene(truth["seed"], truth["index"], level=truth["level"])
    regions = _chosen_regions(row)
    outcomes: list[tuple[bool, bool]] = []
    for number, sentence in enumerate(row["sentences"]):
        for told in objects_told(sentence["text"]):
            is_true = true_of(told, scene)
            hit = is_true and number in regions
            outcomes.append(
                (is_true, hit and _hits(regions[number], _box(truth, scene, told.place)))
            )
    return outcomes


def _box(truth: dict[str, Any], scene: Scene, place: int) -> list[int]:
    """The box of the object at a place; places hold at most one."""
    position = [item.place for item in scene.objects].index(place)
    return truth["objects"][position]["box"]
