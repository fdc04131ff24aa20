"""Every task and every scorer on a pretended GPU measures what it measures on the CPU."""

from __future__ import annotations

import json

import pytest
from annotations import class_boxes_of, refcoco, voc_folder, winoground
from evaluating import run_of
from pretend_cuda import counting, pretend_cuda

from glit.dataset.reader import Dataset
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.evaluation.scorers import SCORERS
from glit.evaluation.tasks import TASKS
from glit.training.objectives import OBJECTIVES

PER_BATCH = 1
"""How often a GPU is waited for; may only go down."""
BATCH_SIZE, NUM_IMAGES, CHUNK = 4, 12, 5


def classes_of(dataset, folder):
    """A dataset's images in two folders; what each shows does not matter here."""
    for number, row in enumerate(Dataset(dataset)):
        place = folder / ("even", "odd")[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(row.encoded())
    return folder


def benchmark_of(task, dataset, folder):
    """What a task measures, in small, and its format."""
    if task == "classify":
        return classes_of(dataset, folder / "classes"), "glit"
    small = {
        "choose": (winoground, "winoground"),
        "boxes": (class_boxes_of, "coco"),
        "refer": (refcoco, "refcoco"),
        "segment": (voc_folder, "voc"),
    }
    if task not in small:
        return dataset, "glit"
    write, kind = small[task]
    return write(folder / kind), kind


def measured(tiny_clip, dataset, device, task, false_sentences=None, kind="glit", **changes):
    config = EvaluateConfig(
        batch_size=BATCH_SIZE, num_workers=0, device=device, chunk_size=CHUNK, **changes
    )
    (result,) = evaluate(
        task, [str(tiny_clip)], str(dataset), config, false_sentences=false_sentences, kind=kind
    )
    return result.metrics


@pytest.mark.parametrize(
    "task, scorer",
    [(task, "cosine") for task in TASKS]
    + [
        (task, each) for task in ("retrieval", "robustness") for each in SCORERS if each != "cosine"
    ],
)
def test_a_task(tiny_clip, make_dataset, tmp_path, task, scorer) -> None:
    dataset = make_dataset(NUM_IMAGES)
    dataset, kind = benchmark_of(task, dataset, tmp_path)
    model = tiny_clip
    if scorer in OBJECTIVES:  # compares what a run of it has learned
        model = run_of(scorer, tiny_clip, dataset, tmp_path / "run")
    changes = {"scorer": scorer, "kind": kind, "box_features": "patches", "templates": "a {}"}
    wanted = measured(model, dataset, "cpu", task, **changes)
    with pretend_cuda(), counting() as counts:
        found = measured(model, dataset, "cuda", task, **changes)
    assert found == pytest.approx(wanted, abs=1e-6)
    # images, regions, captions and captions with a false sentence are encoded in batches
    most = PER_BATCH * 2 * (NUM_IMAGES / BATCH_SIZE + 2)
    if scorer in OBJECTIVES:  # scores on the device: a wait a block
        num_rounds = 2 if task == "robustness" else 1
        most += num_rounds * (-(-NUM_IMAGES // CHUNK)) ** 2
    assert counts.num_syncs <= most, counts


def test_all_pairs_are_localised(tiny_clip, make_dataset) -> None:
    dataset = make_dataset(NUM_IMAGES)
    wanted = measured(tiny_clip, dataset, "cpu", "localize", localize_pairs="all")
    with pretend_cuda():
        assert measured(tiny_clip, dataset, "cuda", "localize", localize_pairs="all") == wanted


def test_robustness_by_type(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, given = make_dataset(NUM_IMAGES), tmp_path / "false.jsonl"
    rows = [
        {"image": i, "sentence": f"A {kind} house.", "type": kind}
        for i in range(NUM_IMAGES)
        for kind in ("red", "tall")
    ]
    given.write_text("\n".join(map(json.dumps, rows)))
    wanted = measured(tiny_clip, dataset, "cpu", "robustness", given)
    with pretend_cuda():
        assert measured(tiny_clip, dataset, "cuda", "robustness", given) == pytest.approx(wanted)
    assert wanted["tall_images"] == NUM_IMAGES
