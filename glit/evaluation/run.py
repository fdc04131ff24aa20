"""Run one evaluation, from names of models and datasets to results."""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from glit.data.captions import LONG
from glit.dataset.manifest import MANIFEST
from glit.dataset.mini_models import shows_scenes
from glit.dataset.reader import Dataset
from glit.errors import InputError, UserError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, load_embedder
from glit.evaluation.false_sentences import read_false_sentences
from glit.evaluation.metrics import Measured, Metrics
from glit.evaluation.own_encoders import with_own_encoders
from glit.evaluation.report import Result
from glit.evaluation.tasks import TASKS
from glit.inputs.published.files import check_exists
from glit.models.clip.runs import has_own_encoders, model_of_run
from glit.models.device import pick_device
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.weights import is_mini
from glit.recipes.config import as_table
from glit.runtime.cpu_threads import CpuThreads
from glit.runtime.process_state import without_bars
from glit.runtime.progress import StageProgress, null_progress
from glit.storage.store import Store
from glit.training.run_file import was_trained_on


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


def _warn_of_dataset(models: Sequence[str], dataset: str) -> None:
    """Warn of models that were trained on the dataset, and of mini models if it shows no scenes."""
    opened = Dataset(dataset)
    for model in models:
        if was_trained_on(Path(model), opened):
            warnings.warn(
                f"{model} was trained on {dataset}: its figures here say nothing of other images; "
                "give a dataset of other images",
                stacklevel=3,
            )
    minis = [model for model in models if is_mini(model)]
    if minis and not shows_scenes(opened):
        warnings.warn(
            f"{', '.join(minis)}: trained on glit's procedural scenes alone, and the images of "
            f"{dataset} look otherwise; the figures mean nothing",
            stacklevel=3,
        )


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
    """The work of :func:`glit.api.evaluate`. ``report`` gets every result as it comes."""
    if task not in TASKS:
        raise UserError(f"{task!r}: wanted one of {', '.join(TASKS)}")
    if checkpoint not in ("best", "last"):
        raise UserError(f"checkpoint {checkpoint!r}: wanted best or last")
    if checkpoint == "last" and not any(model_of_run(Path(m)).checkpoint for m in models):
        raise UserError(
            f"--checkpoint last: {', '.join(models)} is no run of glit train; give the "
            "run's folder, or leave that out"
        )
    if false_sentences is not None and task not in (able := _that_take("false_sentences")):
        raise UserError(f"--false-sentences belongs to {' and '.join(able)}, not to {task}")
    collection = _open(task, dataset, config, kind=kind, images=images, split=split)
    further: dict[str, Any] = {}
    if neighbours and task in _that_take("neighbours"):
        further["neighbours"] = neighbours
    if false_sentences is not None:
        further["false_sentences"] = read_false_sentences(
            false_sentences, collection, seed=config.seed, limited=bool(config.limit)
        )
    if kind == "glit" and Store(dataset).exists(MANIFEST):  # else a folder of classes
        _warn_of_dataset(models, dataset)
    measure = TASKS[task].function()
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
            found = measure(embedder, collection, config, **further)
            result = _result(task, found, embedder, collection, config)
            results.append(result)
            if report is not None:
                report(result)
    return results


def _that_take(argument: str) -> list[str]:
    return [name for name, task in TASKS.items() if argument in task.takes]


def _open(
    name: str,
    dataset: str,
    config: EvaluateConfig,
    *,
    kind: str,
    images: Path | None,
    split: str | None,
) -> Collection:
    """The collection that a task measures."""
    task = TASKS[name]
    if config.caption != LONG and not (task.any_caption and kind == "glit"):
        able = " and ".join(other for other, each in TASKS.items() if each.any_caption)
        raise UserError(
            f"evaluate.caption = {config.caption!r}: {able} of a glit dataset measure other "
            f"captions, not {name} of {kind}"
        )
    if task.formats:
        check_exists(Path(dataset))
    if task.formats and kind not in task.formats:
        raise InputError(f"--format {kind!r}: {name} knows {', '.join(task.formats)}")
    opened = pkgutil.resolve_name(task.open)
    return opened(dataset, config, kind=kind, images=images, split=split)


def _result(
    task: str,
    found: Measured | Metrics,
    embedder: CollectionEmbedder,
    collection: Collection,
    config: EvaluateConfig,
) -> Result:
    measured = found if isinstance(found, Measured) else Measured(metrics=found)
    return Result(
        task=task,
        model=embedder.name,
        checkpoint=embedder.checkpoint,
        dataset=collection.name,
        num_images=len(collection.captions),
        num_captions=sum(map(len, collection.captions)),
        metrics=measured.metrics,
        settings={**as_table(config), "fit": embedder.preprocessing.fit},
        neighbours=measured.neighbours,
        broken=measured.broken,
    )
