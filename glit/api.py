"""The Python API: the functions that ``import glit`` offers; see docs/library.md.

Every function takes and returns plain things; models and engines are imported when they are needed.
Every function first loads the plugins of ``GLIT_PLUGINS`` and of installed packages.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from glit.curate.attaching.attach import Attached
    from glit.curate.certified import Outcome
    from glit.curate.references import Overlap, Written
    from glit.curate.select_rows import RowSelection
    from glit.dataset.push import Pushed
    from glit.dataset.reader import Dataset
    from glit.dataset.statistics import Statistics
    from glit.evaluation.report import Result
    from glit.inspection.findings import AuditReport
    from glit.models.weights import Resolved
    from glit.pipeline.add import Added
    from glit.pipeline.estimate import BuildEstimate as BuildEstimate
    from glit.pipeline.executors import ExecutorChoice, ExecutorName
    from glit.pipeline.executors.protocols import Executor
    from glit.pipeline.status import UnfinishedBuild
    from glit.pipeline.work.timeline import Timeline
    from glit.review.corrections.apply import Applied
    from glit.review.label.calibrate import CalibrationReport as CalibrationReport
    from glit.review.label.judge import JudgeTally
    from glit.runtime.limits import Drops
    from glit.runtime.progress import StageProgress
    from glit.stages.plan import Recipe
    from glit.training.loop import TrainResult

PathLike = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")


def _with_plugins(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, which first loads plugins: it may look up their parts by name."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        from glit.recipes.plugins import load_installed

        load_installed()
        return function(*args, **kwargs)

    return run


@_with_plugins
def build(
    images: PathLike,
    output: PathLike,
    *,
    recipe: str | Recipe,
    settings: Sequence[str] = (),
    captions: PathLike | None = None,
    regions: PathLike | None = None,
    executor: ExecutorChoice = "auto",
    ray_address: str | None = None,
    limit: int | None = None,
    max_drops: Drops = 1.0,
    max_hours: float = math.inf,
    max_tokens: int | None = None,
    replace: bool = False,
    locked: bool = False,
    quiet: bool = False,
    progress: StageProgress | None = None,
) -> Dataset:
    """Build a dataset from images. Call it again to resume.

    Args:
        images: a folder, glob, list file, tar, ZIP or Parquet file, or address.
        output: the dataset's folder or address.
        recipe: a built-in recipe's name, a TOML file, or a recipe that ``load_recipe`` loaded with
            its ``overrides``.
        settings: override recipe keys: ``table.key=value``.
        captions: your own captions: a file or address, ``.jsonl``, ``.csv``, ``.parquet`` or COCO's
            ``.json``.
        regions: your own boxes, with their sentences and phrases: a file or address, ``.jsonl``,
            ``.csv``, ``.parquet`` or COCO's ``.json``.
        executor: ``ray``; ``local`` to run everything in this process; or ``auto``: local for few
            images on one machine without a GPU, else ray.
        ray_address: ``HOST:PORT`` of a Ray cluster. Default: RAY_ADDRESS, else this machine.
        limit: use only the first N images, by path.
        max_drops: stop if a step drops a larger share of its samples, of all or for one reason:
            once 100 are done, or at its end. Filters do not count.
        max_hours: stop after so many hours, when a chunk is done. Default: never.
        max_tokens: stop when prompts and answers of all runs have so many tokens, as the models
            count them, and a chunk is done. Default: never.
        replace: rebuild a finished dataset if the recipe or images differ.
        locked: use exactly the models recorded by :func:`lock`.
        quiet: no progress on standard error.
        progress: used instead of glit's own progress bar.

    Raises:
        GlitError: with a one-line reason. Finished work is kept.
    """
    from glit.errors import StoppedError, UserError
    from glit.pipeline.build import BuildRequest
    from glit.pipeline.build import build as run
    from glit.pipeline.planning.lock import lock_path, read_lock
    from glit.pipeline.planning.plan import find_models
    from glit.pipeline.planning.recipe import load_recipe
    from glit.pipeline.status import build_words, shell_line
    from glit.recipes.extras import require_all
    from glit.runtime.limits import Limits
    from glit.stages import flow

    name, command = recipe if isinstance(recipe, str) else recipe.name, ()
    images, output = os.fspath(images), os.fspath(output)
    captions = None if captions is None else os.fspath(captions)
    regions = None if regions is None else os.fspath(regions)
    if isinstance(recipe, str):
        command = build_words(
            images, output, recipe, settings=settings, captions=captions, regions=regions,
            executor=executor, ray_address=ray_address, limit=limit, max_drops=max_drops,
            max_hours=max_hours, max_tokens=max_tokens, replace=replace, locked=locked,
        )  # fmt: skip
        given = {"caption": captions, "propose": regions}
        given = [f"{name}.backend=provided" for name, file in given.items() if file is not None]
        recipe = load_recipe(recipe, overrides=[*given, *settings])
    elif settings:
        raise UserError(
            f"settings {', '.join(settings)}: they change a named recipe, and {name!r} is loaded "
            "already; give them to load_recipe as overrides"
        )
    request = BuildRequest(
        images=images, output=output, recipe=recipe, captions=captions, regions=regions,
        limit=limit, limits=Limits(drops=max_drops, hours=max_hours, tokens=max_tokens),
        replace=replace, lock=read_lock(lock_path(name)) if locked else None, command=command,
    )  # fmt: skip
    chosen = (
        _chosen_executor(output, ray_address, images=images, recipe=recipe, limit=limit)
        if executor == "auto"
        else executor
    )
    named = "--executor ray" if executor == "ray" else "Ray (--executor local does without it)"
    ray = {"ray": named} if chosen == "ray" else {}
    enabled = flow(recipe.tables)
    require_all({**enabled.extras(recipe), **ray})
    find_models(recipe.name, enabled.models(recipe), lock=request.lock)  # before Ray has started
    try:
        with _at_work(chosen, ray_address, progress, quiet=quiet) as (runner, shown):
            run(request, runner, shown)
    except StoppedError as error:
        if command:
            error.args = (f"{error}: {shell_line(command)}",)
        raise
    return open_dataset(output)


@_with_plugins
def add(
    dataset: PathLike,
    *,
    executor: ExecutorChoice = "auto",
    ray_address: str | None = None,
    limit: int | None = None,
    max_drops: Drops = 1.0,
    max_hours: float = math.inf,
    max_tokens: int | None = None,
    quiet: bool = False,
    progress: StageProgress | None = None,
    report: Callable[[Added], None] | None = None,
) -> Dataset:
    """Add the images that are new in the folder since the build; existing files do not change.

    Args:
        dataset: the dataset's folder or address, with its work folder.
        executor: as in :func:`build`.
        ray_address: as in :func:`build`.
        limit: add only the first N new images, by path.
        max_drops: as in :func:`build`.
        max_hours: as in :func:`build`.
        max_tokens: as in :func:`build`.
        quiet: no progress on standard error.
        progress: used instead of glit's own progress bar.
        report: called with what was added.

    Raises:
        GlitError: with a one-line reason. The dataset is unchanged; finished work is kept.
    """
    from glit.pipeline.add import add as run
    from glit.runtime.limits import Limits

    limits = Limits(drops=max_drops, hours=max_hours, tokens=max_tokens)
    chosen = _chosen_executor(dataset, ray_address) if executor == "auto" else executor
    with _at_work(chosen, ray_address, progress, quiet=quiet) as (runner, shown):
        added = run(os.fspath(dataset), runner, shown, limit=limit, limits=limits)
    if report is not None:
        report(added)
    return open_dataset(dataset)


@_with_plugins
def retry(
    dataset: PathLike,
    *,
    stage: str | None = None,
    reason: str | None = None,
    settings: Sequence[str] = (),
    executor: ExecutorChoice = "auto",
    ray_address: str | None = None,
    quiet: bool = False,
    progress: StageProgress | None = None,
) -> Dataset:
    """Process the dropped samples again and merge the ones that succeed.

    Args:
        dataset: the dataset's folder or address, with its work folder.
        stage: retry only drops of this stage.
        reason: retry only drops with this reason.
        settings: override recipe keys for these samples: ``table.key=value``.
        executor: as in :func:`build`.
        ray_address: as in :func:`build`.
        quiet: no progress on standard error.
        progress: used instead of glit's own progress bar.

    Raises:
        GlitError: with a one-line reason. Finished work is kept.
    """
    from glit.pipeline.retry import retry as run

    chosen = _chosen_executor(dataset, ray_address) if executor == "auto" else executor
    with _at_work(chosen, ray_address, progress, quiet=quiet) as (runner, shown):
        run(os.fspath(dataset), runner, shown, stage=stage, reason=reason, settings=settings)
    return open_dataset(dataset)


def _chosen_executor(
    dataset: PathLike,
    address: str | None,
    *,
    images: str = "",
    recipe: Recipe | None = None,
    limit: int | None = None,
) -> ExecutorName:
    """The executor for a build of images by a recipe, or for more work on a dataset."""
    from glit.dataset.manifest import MANIFEST
    from glit.errors import GlitError
    from glit.inputs.source import find_source
    from glit.pipeline.executors.choice import choose_executor, few_images
    from glit.pipeline.planning.recipe import recipe_from_dict
    from glit.pipeline.work.state import known_state
    from glit.storage.store import Store

    source, few, is_unfinished = None, 0, False
    with contextlib.suppress(GlitError, KeyError):  # the run itself says what is wrong
        store = Store(os.fspath(dataset))
        state = known_state(store.below("work"))
        is_unfinished = state is not None and not store.exists(MANIFEST)
        if recipe is not None:
            few, source = few_images(recipe), find_source(images)
        elif state is not None:
            few = few_images(recipe_from_dict(state.recipe))
            source = state.find_source()
    return choose_executor(
        source, few=few, address=address, limit=limit, is_unfinished=is_unfinished,
    )  # fmt: skip


@contextlib.contextmanager
def _at_work(
    executor: ExecutorName, address: str | None, progress: StageProgress | None, *, quiet: bool
) -> Iterator[tuple[Executor, StageProgress]]:
    """An executor, and the progress that was given or a bar on standard error."""
    from glit.pipeline.executors import open_executor
    from glit.runtime.progress import StageProgress
    from glit.runtime.terminal import Console

    shown = progress or StageProgress(Console(stderr=True, highlight=False), quiet=quiet)
    with open_executor(executor, address=address) as runner, shown:
        yield runner, shown


@_with_plugins
def status(dataset: PathLike) -> dict[str, Any]:
    """Return the progress of a dataset's build per stage: done, pending and dropped.

    Raises:
        UserError: neither a dataset nor a build in progress, or one of another version of glit.
    """
    from glit.pipeline.status import status as look

    return look(os.fspath(dataset))


@_with_plugins
def unfinished_build(dataset: PathLike) -> UnfinishedBuild | None:
    """The build there, if it has no finished dataset yet: what it has dropped so far."""
    from glit.pipeline.status import unfinished_build as look

    return look(os.fspath(dataset))


@_with_plugins
def timelines(dataset: PathLike) -> list[Timeline]:
    """When each stage was at work, by run; the last run last."""
    from glit.pipeline.work.timeline import read_timelines
    from glit.storage.store import Store

    return read_timelines(Store(dataset).below("work"))


@_with_plugins
def estimate(
    dataset: PathLike,
    *,
    images: int,
    gpus: int | str = 0,
    cores: int = 0,
    price: float | None = None,
    rates: Mapping[str, float] | None = None,
) -> BuildEstimate:
    """Estimate a large build from a small one: hours, money, bytes, files and tokens.

    Args:
        dataset: the small build: a finished dataset with its work folder.
        images: images of the large build.
        gpus: GPUs of the large build, such as ``8`` or ``8xH100``; 0: as many as the small one had.
            With a name, the result says if the rates were measured on another GPU.
        cores: CPU cores of the large build; 0: as many as the small one had.
        price: of a GPU hour; without GPUs, of a machine hour.
        rates: samples per second of a stage by one GPU, core or server, in place of what was
            measured.

    Raises:
        UserError: the times of the build are not known, or a number or a stage is impossible.
    """
    from glit.pipeline.estimate import Machines, parse_gpus
    from glit.pipeline.estimate import estimate as run

    number, name = parse_gpus(str(gpus))
    machines = Machines(gpus=number, cores=cores, gpu_name=name)
    return run(os.fspath(dataset), images=images, machines=machines, price=price, rates=rates)


@_with_plugins
def clean(dataset: PathLike) -> int:
    """Remove the work folder of a finished dataset; return the bytes freed.

    Raises:
        UserError: the dataset is not finished, or something is at work in it.
    """
    from glit.pipeline.work.build_lock import clean as remove

    return remove(os.fspath(dataset))


@_with_plugins
def lock(recipe: str, *, settings: Sequence[str] = ()) -> tuple[Path, Mapping[str, Resolved]]:
    """Record the models of a recipe on this machine, for ``build(..., locked=True)``.

    Args:
        recipe: a built-in recipe's name or a TOML file.
        settings: as in :func:`build`.

    Returns:
        The file that was written, and the models by their roles.

    Raises:
        UserError: the file cannot be written.
        GlitError: no such recipe, or a model is missing.
    """
    from glit.errors import UserError
    from glit.pipeline.planning.lock import lock_path, lock_text
    from glit.pipeline.planning.plan import find_models
    from glit.pipeline.planning.recipe import load_recipe
    from glit.stages import flow

    loaded = load_recipe(recipe, overrides=settings)
    wanted = flow(loaded.tables).models(loaded)
    models, path = find_models(loaded.name, wanted), lock_path(recipe)
    try:
        path.write_text(lock_text(loaded.name, models), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot write there ({error.strerror or error})") from error
    return path, models


@_with_plugins
def open_dataset(dataset: PathLike, *, image_root: PathLike = "") -> Dataset:
    """Open a finished dataset: ``len``, rows by number, iteration, Arrow tables.

    Args:
        dataset: the dataset's folder or address.
        image_root: the images' folder, if the dataset stores paths only.

    Raises:
        UserError: there is no dataset, it is not finished, or it has no samples.
        DatasetError: a file of the manifest is missing or cannot be read.
    """
    from glit.dataset.reader import Dataset

    return Dataset(dataset, image_root=os.fspath(image_root))


@_with_plugins
def export(
    dataset: PathLike,
    *,
    to: str,
    output: PathLike,
    embeddings: str = "",
    where: str = "",
    grid: bool = True,
    reencode: bool = False,
    images: bool = True,
    thumbnails: bool = True,
    image_root: PathLike = "",
) -> None:
    """Write a dataset in another format.

    Args:
        dataset: the dataset's folder or address.
        to: a key of ``glit.exporters.EXPORTERS``: ``coco``.
        output: the folder to write, which must not exist yet.
        embeddings: for ``lance``: also write image vectors of this CLIP.
        where: write only samples that meet this SQL condition.
        grid: False leaves out the regions of the grid, and the pairs that have one.
        reencode: write pictures that are not JPEG, PNG or WebP as PNG.
        images: False leaves out the pictures, for ``hf``; ``annotations`` never holds them.
        thumbnails: of pictures that are left out; False keeps only hashes of them.
        image_root: the images' folder, if the dataset stores paths only.

    Raises:
        GlitError: no such format, the output exists or is no local folder, no sample meets the
            condition, or a file of the dataset is damaged.
    """
    from glit.dataset.select import narrowed
    from glit.exporters import export as write
    from glit.storage.outputs import local_folder

    folder = local_folder(output)
    opened = narrowed(open_dataset(dataset, image_root=image_root), where)
    write(
        opened, to=to, output=folder, embeddings=embeddings, grid=grid, reencode=reencode,
        images=images, thumbnails=thumbnails,
    )  # fmt: skip


@_with_plugins
def attach(
    dataset: PathLike,
    images: Sequence[PathLike],
    output: PathLike,
    *,
    progress: StageProgress | None = None,
) -> Attached:
    """Find the pictures of a dataset that was published without them, and write it with them.

    Pictures are found by their bytes, by their pixels, and by their looks after they were encoded
    again, resized, cut, padded, mirrored, turned or given other tones. Boxes and masks move along.
    Call it again to resume.

    Args:
        dataset: the dataset's folder or address, as :func:`export` wrote ``annotations``.
        images: your pictures: folders, globs, lists, tars or tables.
        output: the folder to write, which must not exist yet.
        progress: counts files and rows.

    Raises:
        GlitError: with a one-line reason. Nothing is written.
    """
    from glit.curate.attaching.attach import attach as write
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    folders = [os.fspath(each) for each in images]
    return write(open_dataset(dataset), folders, local_folder(output), progress or null_progress())


@_with_plugins
def push(
    dataset: PathLike,
    repository: str,
    *,
    private: bool = False,
    licence: str = "",
    images: bool = True,
    progress: StageProgress | None = None,
) -> Pushed:
    """Upload a finished dataset to the Hugging Face Hub. Call it again to resume.

    Every file of the folder is uploaded but the work folder and hidden files. The uploaded card
    shows three pictures with their boxes, if the data files hold the images, and its licence stands
    in ``croissant.json`` too. The access token is that of ``huggingface_hub``: HF_TOKEN, or a
    login.

    Args:
        dataset: the folder of a finished dataset.
        repository: the repository on the Hub, ``OWNER/NAME``; made if it does not exist.
        private: make a private repository; one that exists must be private. Default: public.
        licence: licence for the uploaded card, as ``cc-by-4.0``; the folder keeps its own.
        images: False uploads it without its pictures, as :func:`export` writes ``annotations``.
        progress: counts the files.

    Raises:
        UserError: the dataset is not finished or has no licence, no repository can have this name,
            or there is no access token.
        DatasetError: a file is not the manifest's.
        StorageError: the Hub refuses the token, or the connection failed.
    """
    from glit.dataset.push import push as upload
    from glit.runtime.progress import null_progress

    def pictures() -> Mapping[str, bytes]:
        from glit.exporters.preview import card_pictures

        opened = open_dataset(dataset)
        recipe = opened.manifest.recipe
        return card_pictures(opened) if recipe.has_regions and recipe.holds_images else {}

    told = progress or null_progress()
    rest: dict[str, Any] = {"private": private, "licence": licence}
    if images:
        return upload(os.fspath(dataset), repository, told, pictures=pictures, **rest)
    with tempfile.TemporaryDirectory() as folder:
        without = os.path.join(folder, os.path.basename(os.path.abspath(dataset)))
        export(dataset, to="annotations", output=without)
        return upload(without, repository, told, **rest)


@_with_plugins
def verify(dataset: PathLike) -> list[str]:
    """Check the data format's promises; return one line per breach, or an empty list.

    Raises:
        UserError: there is no finished dataset.
    """
    from glit.dataset.verify import verify as check

    return list(check(os.fspath(dataset)))


@_with_plugins
def audit(
    what: PathLike,
    *,
    format: str | None = None,
    images: PathLike = "",
    split: str | None = None,
    against: PathLike = "",
    model: str = "",
    page: PathLike | None = None,
    progress: StageProgress | None = None,
) -> AuditReport:
    """Look for faults in a dataset or in a published file of captions or boxes.

    Args:
        what: a dataset (folder or address), or a file or folder of published captions or boxes,
            captions, regions or images.
        format: a format of ``glit import``, or captions, regions or images. Default: what the
            content tells.
        images: the folder of the pictures. Default: where the format has them.
        split: parts, joined by ``+``. Default: all.
        against: a test set that no image may be in, as :func:`overlap` takes it.
        model: also look for captions of another picture, and for phrases that fit their box badly,
            with this CLIP: a name, a folder, a run or a hub id.
        page: the HTML page to write.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason.
    """
    from glit.curate.references import Wanted, open_list
    from glit.inspection.inspect import inspect
    from glit.inspection.sources import open_source
    from glit.models.clip.opening import open_embedder
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_file
    from glit.view.audit import example_thumbnail, write_audit_page

    output, folder = None if page is None else local_file(page), os.fspath(images)
    told = progress or null_progress()
    source = open_source(os.fspath(what), form=format, images=folder, split=split)
    listed = open_list(Wanted(images=os.fspath(against)), told) if against else None
    report = inspect(
        source, told, images=folder, test_set=listed,
        model=open_embedder(model, needed_for="--model") if model else None,
        thumbnailer=None if output is None else example_thumbnail,
    )  # fmt: skip
    if output is not None:
        write_audit_page(output, report)
    return report


@_with_plugins
def statistics(
    captions: PathLike, *, format: str = "glit", split: str | None = None, tokenizer: str = ""
) -> Statistics:
    """Count words, sentences and tokens of captions.

    Args:
        captions: a dataset; with ``format``, published annotations or a caption file.
        format: ``glit``; captions: JSON lines, CSV or Parquet; docci, dci, dci-full, urban1k, coco,
            flickr30k, sharegpt4v, iiw, goal, goal-joint or himo-docci.
        split: parts of the annotations. Default: test.
        tokenizer: count tokens as this model does. Default: the dataset's; of anything else, none
            are counted.

    Raises:
        GlitError: no such dataset, format or model, no caption in it, or parts of what has none.
    """
    from glit.dataset.manifest import read_manifest
    from glit.dataset.statistics import dataset_statistics
    from glit.inputs.published.files import no_parts
    from glit.inspection.caption_statistics import annotation_statistics
    from glit.models.tokenizer import TextTokenizer
    from glit.models.weights import resolve
    from glit.storage.store import Store

    if format in ("glit", "captions"):
        no_parts(split)
    counting = (tokenizer, TextTokenizer(resolve(tokenizer).path)) if tokenizer else None
    if format == "glit":
        store = Store(captions)
        return dataset_statistics(store, read_manifest(store), counting)
    return annotation_statistics(Path(captions), format, split=split, tokenizer=counting)


@_with_plugins
def pair(
    dataset: PathLike,
    output: PathLike,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    processes: int = 1,
    progress: StageProgress | None = None,
) -> Dataset:
    """Write a finished dataset with the pairs of another rule, without models or pixels.

    Args:
        dataset: the dataset's folder or address.
        output: the folder to write, which must not exist yet.
        recipe: the recipe whose ``[pair]`` table is used. Default: the dataset's own.
        settings: override recipe keys: ``pair.key=value``.
        processes: number that write files; more than one needs an importable main module.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason.
    """
    from glit.curate.pair_again import pair_again
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    folder, opened, shown = local_folder(output), open_dataset(dataset), progress or null_progress()
    shown.begin("pair", total=len(opened), done=0, drops=False)
    pair_again(
        opened, folder, recipe=recipe, settings=settings, processes=processes,
        report=shown.advance,
    )  # fmt: skip
    return open_dataset(folder)


@_with_plugins
def select(
    dataset: PathLike,
    output: PathLike,
    *,
    where: str = "",
    sample: int | None = None,
    by: str = "",
    distinct: float | None = None,
    model: str = "",
    seed: int = 0,
    progress: StageProgress | None = None,
) -> Dataset:
    """Write some rows of a finished dataset as a new one.

    Args:
        dataset: the dataset's folder or address.
        output: the folder to write, which must not exist yet.
        where: take only samples that meet this SQL condition.
        sample: take at most N samples, chosen by a hash of ``seed`` and the ``sample_id``.
        by: with ``sample``: as many of each value of this column or SQL.
        distinct: of images whose embeddings have this cosine or more, keep one: one with
            regions, of these the largest, then the sharpest if that was measured.
        model: the model for ``distinct``: a name, a folder, a run or a hub id.
        seed: seed of ``sample``.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason. Nothing is written.
    """
    from glit.curate.select_rows import RowSelection

    choice = RowSelection(
        where=where, sample=sample, by=by, distinct=distinct, model=model, seed=seed
    )
    return _select(dataset, output, choice, progress)[""]


@_with_plugins
def split(
    dataset: PathLike,
    output: PathLike,
    shares: Mapping[str, float],
    *,
    where: str = "",
    sample: int | None = None,
    by: str = "",
    together: str = "",
    near: int | None = None,
    distinct: float | None = None,
    model: str = "",
    seed: int = 0,
    progress: StageProgress | None = None,
) -> dict[str, Dataset]:
    """Write the rows of a finished dataset as several, in folders of ``output``.

    Args:
        dataset: the dataset's folder or address.
        output: the folder to write, which must not exist yet.
        shares: of every part by its name: ``{"train": 0.98, "val": 0.02}``.
        where: as for :func:`select`.
        sample: as for :func:`select`.
        by: as for :func:`select`.
        together: keep samples with the same value of this column or SQL in one part.
        near: keep look-alike images in one part: their perceptual hashes differ in at most N of 64
            bits, 0 to 7. Decodes all images.
        distinct: as for :func:`select`.
        model: as for :func:`select`.
        seed: seed of ``sample`` and of the parts.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason. Nothing is written.
    """
    from glit.curate.select_rows import RowSelection
    from glit.errors import UserError

    if not shares:
        raise UserError("split: no parts; want shares, as {'train': 0.98, 'val': 0.02}")
    choice = RowSelection(
        where=where, sample=sample, by=by, split=dict(shares), together=together,
        near=near, distinct=distinct, model=model, seed=seed,
    )  # fmt: skip
    return _select(dataset, output, choice, progress)


def _select(
    dataset: PathLike, output: PathLike, choice: RowSelection, progress: StageProgress | None
) -> dict[str, Dataset]:
    from glit.curate.select_rows import select_rows
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    folder = local_folder(output)
    parts = select_rows(open_dataset(dataset), folder, choice, progress or null_progress())
    return {part: open_dataset(folder / part) for part in parts}


@_with_plugins
def merge(
    datasets: Sequence[PathLike], output: PathLike, *, progress: StageProgress | None = None
) -> Dataset:
    """Write the rows of several finished datasets as one; of a repeated image the first.

    Args:
        datasets: folders or addresses of datasets with the same columns and tokenizer.
        output: the folder to write, which must not exist yet.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason. Nothing is written.
    """
    from glit.curate.merge import merge as write
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    folder = local_folder(output)
    write([open_dataset(each) for each in datasets], folder, progress or null_progress())
    return open_dataset(folder)


@_with_plugins
def apply_corrections(
    dataset: PathLike,
    output: PathLike,
    corrections: Sequence[PathLike] = (),
    *,
    judged: PathLike | None = None,
    verdicts: Sequence[PathLike] = (),
    matcher: str = "",
    image_root: PathLike = "",
    progress: StageProgress | None = None,
) -> Applied:
    """Write a finished dataset with people's corrections, or a model's proved repairs.

    Args:
        dataset: the dataset that was corrected.
        output: the folder to write, which must not exist yet.
        corrections: files of ``glit pairs correct``; if several have a sample, the last counts.
        judged: opinions of :func:`judge`, whose repairs are taken. A person's correction of a
            sample goes first.
        verdicts: the audit's files, which must prove these repairs.
        matcher: the dataset's matcher, if its name does not find it.
        image_root: the images' folder, if the dataset stores paths only.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason. Nothing is written.
    """
    from glit.errors import UserError
    from glit.review.corrections.apply import apply_corrections as write
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    folder, opened = local_folder(output), open_dataset(dataset, image_root=image_root)
    files, proofs = ([Path(file) for file in each] for each in (corrections, verdicts))
    if not files and judged is None:
        raise UserError("nothing to apply: want corrections, or judged with verdicts")
    return write(
        opened, folder, files, progress or null_progress(), matcher=matcher,
        judged=None if judged is None else Path(judged), verdicts=proofs,
    )  # fmt: skip


@_with_plugins
def references(
    images: PathLike,
    output: PathLike,
    *,
    model: str = "",
    folder: PathLike = "",
    split: str = "",
    progress: StageProgress | None = None,
) -> Written:
    """Write hashes and thumbnails of images that datasets must not hold, as a Parquet file.

    Args:
        images: what :func:`build` takes; or the images of annotations, as ``FORMAT:PATH``
            (``docci:docci_descriptions.jsonlines``, formats as :func:`evaluate` takes them); or a
            file ``.sha256`` as ``sha256sum`` writes it, whose hashes find equal files alone.
        output: the file to write.
        model: also store this model's embedding of each image, so that other pictures of the same
            thing can be found.
        folder: of the annotations' images, where they do not lie where their format has them.
        split: parts of the annotations, joined by ``+``; without it, ``test`` where there are any.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason.
    """
    from glit.curate.references import Wanted, write_references
    from glit.errors import UserError
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_file

    wanted = Wanted(images=os.fspath(images), folder=os.fspath(folder), split=split)
    if wanted.folder and not wanted.is_annotations:
        raise UserError(f"--images {folder}: is for annotations, as docci:PATH; found {images}")
    return write_references(wanted, local_file(output), progress or null_progress(), model=model)


@_with_plugins
def overlap(
    dataset: PathLike,
    references: PathLike,
    *,
    model: str = "",
    cosine: float | None = None,
    page: PathLike | None = None,
    images: PathLike = "",
    split: str = "",
    progress: StageProgress | None = None,
) -> list[Overlap]:
    """Find the samples of a finished dataset that a file of :func:`references` holds, or that
    resemble one of its images.

    Args:
        dataset: the dataset's folder or address.
        references: the file, ``.parquet``; or what :func:`references` takes, of which the list is
            made first.
        model: also compare embeddings of this model, the list's.
        cosine: smallest cosine of embeddings that counts. Default: 0.95.
        page: the HTML file to write, both images side by side.
        images: the folder or address of the list's images, for ``page`` or annotations. Without it,
            a page shows the list's small grey pictures.
        split: parts of the annotations, joined by ``+``. Default: test.
        progress: counts the images.

    Raises:
        GlitError: with a one-line reason.
    """
    from glit.curate.references import Wanted, find_overlaps, open_list
    from glit.errors import UserError
    from glit.inputs.source import find_source
    from glit.runtime.progress import null_progress
    from glit.stages.exclude import LEAST_COSINE
    from glit.storage.outputs import local_file
    from glit.view.overlap import write_overlap_page

    wanted = Wanted(images=os.fspath(references), folder=os.fspath(images), split=split)
    output = None if page is None else local_file(page)
    if images and output is None and not wanted.is_annotations:
        raise UserError(f"--images {images}: is for a page; add --page FILE.html")
    if cosine is not None and not model:
        raise UserError(f"--cosine {cosine}: is of embeddings; add --model, that of the list")
    if cosine is not None and not 0 < cosine <= 1:
        raise UserError(f"--cosine {cosine}: want a cosine above 0, at most 1")
    root = ""
    if output is not None:
        of_list = images and not wanted.is_annotations
        root = find_source(os.fspath(images)).root if of_list else wanted.root
    opened, progress = open_dataset(dataset), progress or null_progress()
    listed = open_list(wanted, progress, model=model)
    least = LEAST_COSINE if cosine is None else cosine
    found = list(find_overlaps(opened, listed, progress, model=model, cosine=least))
    if output is not None:
        write_overlap_page(output, opened, found, references=listed, images=root)
    return found


@_with_plugins
def diff(a: PathLike, b: PathLike) -> dict[str, Any]:
    """Compare two finished datasets: images, settings, and regions of sentences.

    Args:
        a: the first dataset.
        b: the second dataset.

    Raises:
        GlitError: with a one-line reason.
    """
    from glit.view.compare import difference

    return difference(open_dataset(a), open_dataset(b))


@_with_plugins
def calibrate(
    dataset: PathLike,
    verdicts: PathLike,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
) -> CalibrationReport:
    """Fit pair probabilities to verdicts on a dataset's pairs.

    Args:
        dataset: the dataset whose pairs you judged.
        verdicts: the JSON Lines file of your verdicts; one line per answer.
        recipe: the recipe of the rule. Default: the dataset's own.
        settings: override recipe keys: ``pair.key=value``.

    Raises:
        GlitError: there are no verdicts, or too few of a kind.
    """
    from glit.curate.pair_again import pair_config
    from glit.errors import InputError
    from glit.review.label.calibrate import calibrate as fit
    from glit.review.label.verdicts import read_verdicts

    opened, verdicts = open_dataset(dataset), Path(verdicts)
    if not verdicts.is_file():
        raise InputError(f"--verdicts {verdicts}: no such file; glit pairs label writes it")
    bare = ["pair.calibration=", "pair.min_probability=0", "pair.min_support=0"]
    config = pair_config(opened.manifest, recipe, [*settings, *bare])
    return fit(opened, read_verdicts(verdicts), config)


@_with_plugins
def certify(
    dataset: PathLike,
    verdicts: PathLike | Sequence[PathLike],
    *,
    of: str | None = None,
    where: str | None = None,
    error: float | None = None,
    confidence: float | None = None,
    part: str | None = None,
    unsure: str | None = None,
    seed: int | None = None,
    num: int | None = None,
    judged: PathLike | None = None,
    output: PathLike | None = None,
    progress: StageProgress | None = None,
) -> Outcome:
    """Plan an audit of a dataset, or tell what its verdicts prove; see docs/certify.md.

    Args:
        dataset: the dataset's folder or address.
        verdicts: the audit's file, or the files of several people. One that does not exist is
            written with the plan; ``glit pairs label`` then asks.
        of: ``pairs``, ``sentences``, ``phrases``, ``boxes``, or ``repairs``: the pairs that a model
            names in place of those it calls wrong. Default: pairs.
        where: judge only samples that meet this SQL condition.
        error: largest share of wrong ones to claim. Default: 0.05.
        confidence: confidence of the claim. Default: 0.95.
        part: claim it of ``all``, or of the ``largest`` part by probability. Default: all.
        unsure: count 'cannot tell' as ``wrong`` or ``right``. Default: wrong.
        seed: seed of the draw. Default: 0.
        num: the number of verdicts you plan. Default: enough for a chance of 90 %.
        judged: opinions of :func:`judge` on all items; fewer verdicts are then needed. The plan and
            its verdicts want the same file.
        output: write the certified dataset to a folder that does not exist yet. Pairs outside a
            certified part lose their region.
        progress: counts the images that are written.

    Raises:
        GlitError: with a one-line reason: the verdicts are of another dataset or contradict each
            other, an option is not the plan's, or with an output the claim is not proved.
    """
    from glit.curate.certified import certify as audit
    from glit.runtime.progress import null_progress
    from glit.storage.outputs import local_folder

    one = isinstance(verdicts, str | os.PathLike)
    files = [Path(file) for file in ([verdicts] if one else verdicts)]
    options = {
        "of": of, "where": where, "error": error, "confidence": confidence, "part": part,
        "unsure": unsure, "seed": seed, "verdicts": num,
    }  # fmt: skip
    opened, told = open_dataset(dataset), progress or null_progress()
    folder = None if output is None else local_folder(output)
    if folder is not None:
        told.begin("certify", total=len(opened), done=0, drops=False)
    return audit(
        opened, files, given={k: v for k, v in options.items() if v is not None},
        judged=None if judged is None else Path(judged), output=folder, report=told.advance,
    )  # fmt: skip


@_with_plugins
def judge(
    dataset: PathLike,
    judged: PathLike,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    of: str = "pairs",
    where: str = "",
    num: int | None = None,
    report: Callable[[int], None] | None = None,
) -> JudgeTally:
    """Ask a vision-language model whether pairs are right. Call it again to go on.

    Args:
        dataset: the dataset's folder or address.
        judged: the JSON Lines file of the model's opinions, which is appended to.
        recipe: the recipe whose ``[caption]`` table names the model. Default: glit's defaults.
        settings: override recipe keys: ``caption.key=value``; ``caption.backend`` is
            ``endpoint`` or ``vllm``.
        of: ``pairs``, ``sentences``, ``phrases`` or ``boxes``.
        where: judge only samples that meet this SQL condition.
        num: ask about a random draw of so many. Default: all.
        report: called with 1 for every answer.

    Raises:
        GlitError: with a one-line reason: the model cannot be used, the file is of another dataset
            or model, or the model answers always the same.
    """
    from glit.review.label.judging_model import judge_with

    return judge_with(
        open_dataset(dataset), Path(judged), recipe=recipe, settings=settings, of=of, where=where,
        num=num, report=report or (lambda number: None),
    )  # fmt: skip


@_with_plugins
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
        dataset: the dataset's folder or address.
        run: the run's folder.
        recipe: the recipe whose ``[train]`` table is used; a new run wants one.
        objective: replace the recipe's objective: ``clip``, ``fast-goal``, ...
        settings: override recipe keys: ``train.key=value``.
        resume: continue from the run's last checkpoint with its settings.
        report: called with every line of metrics.

    Raises:
        GlitError: a setting or the dataset cannot be used, a loss is not finite, or the disk is
            full. The last complete checkpoint is kept.
    """
    from glit.recipes.extras import require

    require("train", needed_for="glit.train")
    from glit.evaluation.validation import open_validation
    from glit.pipeline.planning.recipe import known_tables
    from glit.storage.outputs import local_folder
    from glit.training.loop import train as fine_tune
    from glit.training.run_file import config_of

    folder = local_folder(run)
    config = config_of(
        folder, recipe=recipe, objective=objective, settings=settings, resume=resume,
        known_tables=known_tables,
    )  # fmt: skip
    return fine_tune(
        config, os.fspath(dataset), folder, resume=resume, report=report,
        open_measure=open_validation,
    )  # fmt: skip


@_with_plugins
def evaluate(
    task: str,
    models: str | Sequence[str],
    dataset: PathLike,
    *,
    recipe: str = "mini",
    settings: Sequence[str] = (),
    format: str = "glit",
    images: PathLike | None = None,
    split: str | None = None,
    checkpoint: Literal["best", "last"] = "best",
    false_sentences: PathLike | None = None,
    neighbours: int = 0,
    progress: StageProgress | None = None,
) -> list[Result]:
    """Measure models on the same images; return one result per model.

    Args:
        task: a command of ``glit eval``, as ``retrieval``; all are in
            ``glit.evaluation.tasks.TASKS``.
        models: built-in names, folders, runs of ``glit train``, hub ids.
        dataset: a glit dataset; with ``format``, published annotations; for ``classify``, a folder
            with one folder per class.
        recipe: the recipe whose ``[evaluate]`` table is used.
        settings: override recipe keys: ``evaluate.key=value``.
        format: ``glit``, or the format of the annotations.
        images: the image folder of the annotations.
        split: parts of the annotations, joined by ``+``: ``test+qual_test``. Default: test.
        checkpoint: which checkpoint of a run.
        false_sentences: for ``robustness``, instead of drawn sentences: JSON lines, the ground
            truth of scenes, or a dataset with the column ``negatives``.
        neighbours: for ``retrieval``: number of right and of wrong queries to keep.
        progress: shows which model is loaded, then counts texts and images.

    Raises:
        GlitError: a model, a dataset or a setting cannot be used, or a model returns NaN.
    """
    from glit.recipes.extras import require

    require("models", needed_for="glit.evaluate")
    from glit.evaluation.config import EvaluateConfig
    from glit.evaluation.run import evaluate as measure
    from glit.pipeline.planning.recipe import load_table

    return measure(
        task,
        [models] if isinstance(models, str) else list(models),
        os.fspath(dataset),
        load_table(EvaluateConfig, recipe, overrides=settings),
        kind=format,
        images=None if images is None else Path(images),
        split=split,
        checkpoint=checkpoint,
        false_sentences=None if false_sentences is None else Path(false_sentences),
        neighbours=neighbours,
        progress=progress,
    )
