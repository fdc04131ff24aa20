"""Print what the mini models reach on test scenes against what they must reach.

``python -m tools.mini.report [--num 500]``
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from rich.console import Console

from glit.bench.scenes import RIGHT_IOU, XYXY, build_scenes, judge, truths
from glit.data.geometry import iou
from glit.dataset.row import Row
from glit.runtime.tables import Page, Table, show
from glit.scenes import draw_scene, write_scenes
from tools.mini.evaluate import (
    MINI,
    TEST_SEED,
    evaluate_captioner,
    evaluate_grounder,
    evaluate_matcher,
    evaluate_proposer,
    evaluate_segmenter,
    samples,
)
from tools.mini.parsed_captions import objects_told, true_of

WANTED: tuple[tuple[str, str, str, float | None], ...] = (
    ("matcher", "sentence_to_box", "sentence to true box", 0.97),
    ("matcher", "shape_in_colour", "shape among crops of one colour", 0.80),
    ("matcher", "short_r1", "short caption R@1", 0.70),
    ("matcher", "long_r1", "long caption R@1 (room for fine-tuning)", None),
    ("clip", "short_r1", "short caption R@1", 0.70),
    ("clip", "long_r1", "long caption R@1 (what fine-tuning is to teach)", None),
    ("clip", "sentence_to_box", "sentence to true box (the same)", None),
    ("proposer", "recall", "recall at IoU 0.5", 0.95),
    ("proposer", "precision", "precision at IoU 0.5", 0.85),
    ("grounder", "phrase_recall", "captions' phrases: recall at IoU 0.5", 0.97),
    ("grounder", "phrase_precision", "captions' phrases: precision", 0.97),
    ("grounder", "drawn_recall", "drawn phrases, plurals too: recall", 0.97),
    ("grounder", "drawn_precision", "drawn phrases: precision", 0.97),
    ("segmenter", "point_iou", "mean IoU from a random point", 0.80),
    ("segmenter", "auto_recall", "automatic boxes: recall at IoU 0.5", 0.85),
    ("segmenter", "auto_precision", "automatic boxes: precision", None),
    ("captioner", "true_sentences", "object sentences true (shape, colour, place)", 0.80),
    ("captioner", "told_per_object", "sentences per object", None),
    ("captioner", "well_formed", "well-formed captions", 0.99),
    ("captioner", "background", "background true", 0.95),
    ("captioner", "light", "light true", None),
    ("whole flow", "own_right_region", "own captions: right object at IoU 0.5", 0.90),
    ("whole flow", "mini_true_sentences", "mini captions: true sentences", None),
    ("whole flow", "mini_right_region", "mini captions: right region of the true ones", None),
)
"""Model, figure, its name in the table, and what it must reach."""


def measure(models: Path, num: int, *, with_flow: bool = True) -> dict[str, dict[str, float]]:
    """All figures by model, on the first ``num`` normal test scenes."""
    tests = samples(num)
    figures = {
        "matcher": evaluate_matcher(models / "matcher", tests),
        "clip": evaluate_matcher(models / "clip", tests),
        "proposer": evaluate_proposer(models / "proposer", tests),
        "grounder": evaluate_grounder(models / "grounder", tests),
        "segmenter": evaluate_segmenter(
            models / "segmenter", tests[: max(1, num // 2)], num_automatic=max(1, num // 5)
        ),
        "captioner": evaluate_captioner(models / "captioner", tests),
    }
    if with_flow:
        with tempfile.TemporaryDirectory() as folder:
            figures["whole flow"] = flow_figures(Path(folder), max(1, num // 2))
    return figures


def flow_figures(folder: Path, num: int) -> dict[str, float]:
    """Whether the region chosen for a sentence shows what it tells of, on normal test scenes.

    Builds with the ``mini`` recipe and compares the dataset with the truth.
    """
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


def page(figures: dict[str, dict[str, float]], num: int) -> Page:
    """The figures beside what was wanted."""
    rows = []
    for model, key, name, wanted in WANTED:
        found = figures.get(model, {}).get(key)
        if found is not None:
            least = "" if wanted is None else f"≥ {wanted:.2f}"
            verdict = "" if wanted is None else ("reached" if found >= wanted else "short")
            rows.append([model, name, least, f"{found:.3f}", verdict])
    heads = ["model", "figure", "wanted", "found", ""]
    title = f"The mini models on {num} test scenes (normal)"
    return [title, Table(heads=heads, rows=rows, words=2)]


def main() -> None:
    """Measure and print; ``--json`` for programs."""
    parser = argparse.ArgumentParser(description="measure the mini models on test scenes")
    parser.add_argument("--num", type=int, default=500, help="test scenes")
    parser.add_argument("--models", type=Path, default=MINI, help="folder of the six models")
    parser.add_argument("--no-flow", action="store_true", help="leave the builds out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(arguments.models, arguments.num, with_flow=not arguments.no_flow)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        show(page(figures, arguments.num), Console())


if __name__ == "__main__":
    main()
