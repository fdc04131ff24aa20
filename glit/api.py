"""The Python API: the functions that ``import glit`` offers; see docs/library.md.

Every function takes and returns plain things; models and engines are imported when they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.evaluation.report import Result
    from glit.executors import ExecutorName
    from glit.runtime.progress import StageProgress
    from glit.stages.plan import Recipe
    from glit.training.result import TrainResult

PathLike = str | os.PathLike[str]


def build(
    images: PathLike,
    output: PathLike,
    *,
    recipe: str | Recipe,
    settings: Sequence[str] = (),
    captions: PathLike | None = None,
    executor: ExecutorName = "ray",
    limit: int | None = None,
    replace: bool = False,
    locked: bool = False,
    quiet: bool = False,
) -> Dataset:
    """Build a dataset from images. Call it again to resume.

    Args:
        images: a folder, a glob, a list file, or an address.
        output: the dataset's folder or address.
        recipe: a built-in recipe's name, a TOML file, or a recipe.
        settings: ``table.key=value``, changes to a named recipe; one that is loaded already takes
            them as ``load_recipe(..., overrides=...)``.
        captions: path or address of your own, ``.jsonl``, ``.csv`` or ``.parquet`` keyed by path.
        executor: ``ray``, or ``local`` for everything in this process.
        limit: only the first images.
        replace: rebuild a finished dataset of another recipe or other images.
        locked: take the models that ``glit lock`` wrote down for the recipe, or none.
        quiet: no progress on standard error.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    from glit.errors import UserError
    from glit.executors import open_executor
    from glit.pipeline.lock import lock_path, read_lock
    from glit.pipeline.run import BuildRequest
    from glit.pipeline.run import build as run
    from glit.runtime.progress import StageProgress
    from glit.runtime.terminal import Console
    from glit.stages.recipe import load_recipe

    name = recipe if isinstance(recipe, str) else recipe.name
    if isinstance(recipe, str):
        changes = ["caption.backend=provided", *settings] if captions is not None else settings
        recipe = load_recipe(recipe, overrides=changes)
    elif settings:
        raise UserError(
            f"settings {', '.join(settings)}: they change a named recipe, and {name!r} is loaded "
            "already; give them to load_recipe as overrides"
        )
    request = BuildRequest(
        images=os.fspath(images),
        output=os.fspath(output),
        recipe=recipe,
        captions=None if captions is None else os.fspath(captions),
        limit=limit,
        replace=replace,
        lock=read_lock(lock_path(name)) if locked else None,
    )
    console = Console(stderr=True, highlight=False)
    with open_executor(executor) as runner, StageProgress(console, quiet=quiet) as progress:
        run(request, runner, progress)
    return open_dataset(output)


def add(
    dataset: PathLike,
    *,
    executor: ExecutorName = "ray",
    limit: int | None = None,
    quiet: bool = False,
) -> Dataset:
    """Add the images that are new in the folder since the build; existing files do not change.

    Args:
        dataset: folder or address of a dataset whose work folder is still there.
        executor: ``ray``, or ``local`` for everything in this process.
        limit: only the first new images by their paths.
        quiet: no progress on standard error.

    Raises:
        GlitError: see the one line it carries; the dataset is as it was, and what is done stays.
    """
    from glit.executors import open_executor
    from glit.pipeline.add import add as run
    from glit.runtime.progress import StageProgress
    from glit.runtime.terminal import Console

    console = Console(stderr=True, highlight=False)
    with open_executor(executor) as runner, StageProgress(console, quiet=quiet) as progress:
        run(os.fspath(dataset), runner, progress, limit=limit)
    return open_dataset(dataset)


def open_dataset(dataset: PathLike, *, image_root: PathLike = "") -> Dataset:
    """Open a finished dataset: ``len``, rows by number, iteration, Arrow tables.

    Args:
        dataset: folder or address.
        image_root: the ingested folder, for a dataset that stores images by path.

    Raises:
        UserError: there is no dataset, it is not finished, or it has no samples.
        DatasetError: a file of the manifest is missing or cannot be read.
    """
    from glit.dataset.reader import Dataset

    return Dataset(dataset, image_root=os.fspath(image_root))


def export(
    dataset: PathLike,
    *,
    to: str,
    output: PathLike,
    embeddings: str = "",
    image_root: PathLike = "",
) -> None:
    """Write a dataset in another format.

    Args:
        dataset: folder or address of a finished dataset.
        to: a key of ``glit.exporters.EXPORTERS``: ``coco``.
        output: a folder that does not exist yet.
        embeddings: of ``lance``: the CLIP whose image embeddings go in beside.
        image_root: the ingested folder, for a dataset that stores images by path.

    Raises:
        GlitError: no such format, the output exists or is no local folder, or a file of the
            dataset is damaged.
    """
    from glit.exporters import export as write
    from glit.storage.outputs import local_folder

    folder = local_folder(output)
    write(open_dataset(dataset, image_root=image_root), to=to, output=folder, embeddings=embeddings)


def verify(dataset: PathLike) -> list[str]:
    """Check the data format's promises; return one line per breach, or an empty list.

    Raises:
        UserError: there is no finished dataset.
    """
    from glit.dataset.verify import verify as check

    return list(check(os.fspath(dataset)))


def pair(
    dataset: PathLike,
    output: PathLike,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
) -> Dataset:
    """Write a finished dataset with the pairs of another rule, without models or pixels.

    Args:
        dataset: the finished dataset.
        output: a folder that does not exist yet.
        recipe: whose ``[pair]`` table is taken; without it, the dataset's own.
        settings: ``pair.key=value``.

    Raises:
        GlitError: see the one line it carries.
    """
    from glit.pipeline.pair_again import pair_again
    from glit.storage.outputs import local_folder

    folder = local_folder(output)
    pair_again(open_dataset(dataset), folder, recipe=recipe, settings=settings)
    return open_dataset(folder)


def train(
    dataset: PathLike,
    run: PathLike,
    *,
    recipe: str | None = None,
    objective: str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    report: Callable[[dict[str, float | int | str]], None] | None = None,
) -> TrainResult:
    """Fine-tune CLIP on a dataset. ``RUN/last`` and ``RUN/best`` are CLIPModel folders.

    Args:
        dataset: a finished dataset.
        run: the run's folder.
        recipe: whose ``[train]`` table is taken; a new run wants one.
        objective: replaces the recipe's.
        settings: ``train.key=value``.
        resume: go on with the run, under its own settings.
        report: called with every line of metrics.

    Raises:
        GlitError: see the one line it carries; the last good checkpoint stays.
    """
    from glit.recipes.extras import require

    require("train", needed_for="glit.train")
    from glit.evaluation.validation import open_validation
    from glit.storage.outputs import local_folder
    from glit.training.loop import train as fine_tune
    from glit.training.run_file import config_of

    folder = local_folder(run)
    config = config_of(folder, recipe=recipe, objective=objective, settings=settings, resume=resume)
    return fine_tune(
        config,
        os.fspath(dataset),
        folder,
        resume=resume,
        report=report,
        open_measure=open_validation,
    )


def evaluate(
    task: str,
    models: str | Sequence[str],
    dataset: PathLike,
    *,
    recipe: str = "mini",
    settings: Sequence[str] = (),
    kind: str = "glit",
    images: PathLike | None = None,
    split: str | None = None,
    checkpoint: Literal["best", "last"] = "best",
    false_sentences: PathLike | None = None,
    neighbours: int = 0,
    progress: StageProgress | None = None,
) -> list[Result]:
    """Measure models on the same images; return one result per model.

    Args:
        task: ``retrieval``, ``joint-map``, ``localize``, ``robustness``, ``caption-quality`` or
            ``classify``.
        models: built-in names, folders, runs of ``glit train``, hub ids.
        dataset: a glit dataset; with ``kind``, annotations as published; for ``classify`` a folder
            of classes.
        recipe: whose ``[evaluate]`` table is taken.
        settings: ``evaluate.key=value``.
        kind: ``glit``, or the format of the annotations.
        images: the image folder of the annotations.
        split: part of the annotations, or several: ``test+qual_test``.
        checkpoint: which one of a run.
        false_sentences: JSON lines for ``robustness``, or the truth of scenes, in place of drawn
            ones.
        neighbours: of ``retrieval``: how many right and how many wrong queries to keep.
        progress: told which model is loaded, then of texts and images.

    Raises:
        GlitError: a model, a dataset or a setting cannot be used, or a model answers NaN.
    """
    from glit.recipes.extras import require

    require("models", needed_for="glit.evaluate")
    from glit.evaluation.run import evaluate as measure
    from glit.stages.recipe import load_table

    return measure(
        task,
        [models] if isinstance(models, str) else list(models),
        os.fspath(dataset),
        load_table("evaluate", recipe, overrides=settings),
        kind=kind,
        images=None if images is None else Path(images),
        split=split,
        checkpoint=checkpoint,
        false_sentences=None if false_sentences is None else Path(false_sentences),
        neighbours=neighbours,
        progress=progress,
    )
