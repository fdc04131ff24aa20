"""Run one evaluation, from names of models and datasets to results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from glit.clip.runs import model_of_run
from glit.data.captions import LONG
from glit.errors import InputError, UserError
from glit.evaluation.class_folder import ClassFolder
from glit.evaluation.collection import Collection, open_collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, load_embedder
from glit.evaluation.false_sentences import read_false_sentences
from glit.evaluation.label_maps import open_label_maps
from glit.evaluation.metrics import Metrics
from glit.evaluation.own_encoders import with_own_encoders
from glit.evaluation.questions import Questions
from glit.evaluation.readers.boxes import class_boxes, expressions
from glit.evaluation.readers.questions import read_questions
from glit.evaluation.report import Result
from glit.evaluation.tasks import TASKS
from glit.evaluation.tasks.boxes import BoxFiles
from glit.evaluation.tasks.classify import classify_and_broken
from glit.evaluation.tasks.retrieval import retrieval_and_neighbours
from glit.evaluation.tasks.robustness import robustness
from glit.gpu.convolutions import no_tf32_convolutions
from glit.models.device import pick_device
from glit.published.files import no_parts
from glit.recipes.config import as_table
from glit.runtime.cpu_threads import CpuThreads
from glit.runtime.process_state import without_bars
from glit.runtime.progress import StageProgress, null_progress
from glit.training.setup import has_own_encoders

OF_CAPTIONS = ("retrieval", "caption-quality")
"""Tasks that measure captions of any kind; the others go by the sentences of the long one."""


def open_embedder(
    model: str,
    config: EvaluateConfig,
    *,
    checkpoint: Literal["best", "last"] = "best",
    progress: StageProgress | None = None,
) -> CollectionEmbedder:
    """Load a model by name, with its objective's own encoders if it has them."""
    embedder = load_embedder(model, config, checkpoint=checkpoint, progress=progress)
    if has_own_encoders(embedder.folder):
        return with_own_encoders(embedder, config)
    return embedder


def evaluate(
    task: str,
    models: Sequence[str],
    dataset: str,
    config: EvaluateConfig,
    *,
    kind: str = "glit",
    images: Path | None = None,
    split: str | None = None,
    checkpoint: Literal["best", "last"] = "best",
    false_sentences: Path | None = None,
    neighbours: int = 0,
    report: Callable[[Result], None] | None = None,
    progress: StageProgress | None = None,
) -> list[Result]:
    """Measure several models on the same collection, one after the other.

    Args:
        task: one of TASKS.
        models: built-in names, folders, runs, hub ids.
        dataset: a glit dataset, or the annotations of a public one; for ``classify`` a folder of
            classes.
        config: settings.
        kind: ``glit``, or the format of the annotations.
        images: image folder of the annotations.
        split: parts of the annotations, several joined by ``+``.
        checkpoint: which one of a run is measured.
        false_sentences: JSON lines for ``robustness``, the truth of scenes, or a dataset with the
            column ``negatives``, in place of drawn ones.
        neighbours: of ``retrieval``: how many right and how many wrong queries to keep.
        report: called with every result as it comes.
        progress: told which model is loaded, then of texts and images.

    Raises UserError for a model, a dataset or a setting that cannot be used.
    """
    if task not in TASKS:
        raise UserError(f"{task!r}: wanted one of {', '.join(TASKS)}")
    if checkpoint not in ("best", "last"):
        raise UserError(f"checkpoint {checkpoint!r}: wanted best or last")
    if checkpoint == "last" and not any(model_of_run(Path(m)).checkpoint for m in models):
        raise UserError(
            f"--checkpoint last: {', '.join(models)} is no run of glit train; give the "
            "run's folder, or leave that out"
        )
    if false_sentences is not None and task != "robustness":
        raise UserError(f"--false-sentences belongs to robustness, not to {task}")
    if config.caption != LONG and (task not in OF_CAPTIONS or kind != "glit"):
        raise UserError(
            f"evaluate.caption = {config.caption!r}: {' and '.join(OF_CAPTIONS)} of a glit dataset "
            f"measure other captions, not {task} of {kind}"
        )
    collection = _open(task, dataset, config, kind=kind, images=images, split=split)
    measure = TASKS[task]
    if false_sentences is not None:
        given = read_false_sentences(
            false_sentences, collection, seed=config.seed, limited=bool(config.limit)
        )
        measure = functools.partial(robustness, false_sentences=given)
    told = progress or null_progress()
    results: list[Result] = []
    with CpuThreads(pick_device(config.device).type) as threads, no_tf32_convolutions():
        for model in models:
            told.begin("model", total=1, done=0, drops=False)
            told.loading(model)
            with without_bars():
                embedder = open_embedder(model, config, checkpoint=checkpoint, progress=told)
            told.advance(1)
            if not results:
                threads.fit()
            result = _measured(task, measure, embedder, collection, config, neighbours)
            results.append(result)
            if report is not None:
                report(result)
    return results


def _open(
    task: str,
    dataset: str,
    config: EvaluateConfig,
    *,
    kind: str,
    images: Path | None,
    split: str | None,
) -> Collection:
    """The collection that a task measures."""
    path = Path(dataset)
    if task in ("choose", "refer", "boxes", "segment") and not path.exists():
        raise InputError(f"{path}: no such file or folder; give the annotations as published")
    if task == "classify":
        if kind != "glit" or images is not None or split is not None:
            raise UserError("--format, --images and --split: classify takes a folder of classes")
        return ClassFolder(path, names=config.class_names, limit=config.limit)
    if task == "choose":
        no_parts(split)
        return Questions(kind, read_questions(kind, path, images=images, limit=config.limit))
    if task == "refer":
        _check_format(task, kind, "refcoco")
        found = expressions(path, images=images, split=split, limit=config.limit)
        return Questions(f"{kind} {split or 'val'}", found)
    if task == "boxes":
        _check_format(task, kind, "coco", "lvis")
        no_parts(split)
        return BoxFiles(kind, class_boxes(path, images=images, limit=config.limit))
    if task == "segment":
        return open_label_maps(kind, path, split=split, limit=config.limit)
    return open_collection(dataset, config, kind=kind, images=images, split=split)


def _check_format(task: str, kind: str, *known: str) -> None:
    if kind not in known:
        raise InputError(f"--format {kind!r}: {task} knows {', '.join(known)}")


def _measured(
    task: str,
    measure: Callable[[CollectionEmbedder, Collection, EvaluateConfig], Metrics],
    embedder: CollectionEmbedder,
    collection: Collection,
    config: EvaluateConfig,
    neighbours: int,
) -> Result:
    found: dict[str, Any] = {}
    broken: list[str] = []
    if neighbours and task == "retrieval":
        metrics, found = retrieval_and_neighbours(embedder, collection, config, most=neighbours)
    elif task == "classify":
        metrics, broken = classify_and_broken(embedder, collection, config)
    else:
        metrics = measure(embedder, collection, config)
    return Result(
        task=task,
        model=embedder.name,
        checkpoint=embedder.checkpoint,
        dataset=collection.name,
        num_images=len(collection.captions),
        num_captions=sum(map(len, collection.captions)),
        metrics=metrics,
        settings={**as_table(config), "fit": embedder.preprocessing.fit},
        neighbours=found,
        broken=tuple(broken),
    )
