"""The benchmark from the request to the report."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from glit.backends.device import pick_device
from glit.bench.harness import Row, Worker, write_report
from glit.bench.lism_flism.columns import COLUMNS, Batch, Column, Job
from glit.bench.lism_flism.fixed import NUM_GRID
from glit.bench.lism_flism.inputs import Images, photographs, scenes, with_sentences
from glit.bench.lism_flism.models import FULL, Models, Sizes, Weights, find_models, make_random
from glit.bench.lism_flism.report import (
    better_rates,
    column_figures,
    judge,
    page,
    parameters,
    project,
    ratios,
)
from glit.bench.lism_flism.ways import PRELOADED, open_way
from glit.bench.machine import describe_machine, versions
from glit.errors import InputError, StoppedError
from glit.images import ImageError, decode
from glit.recipes.extras import require
from glit.runtime.cores import usable_cores

NUM_MINI, NUM_ON_CPU, NUM_ON_GPU = 8, 2, 64
"""Images unless the user says otherwise: mini models, full-size ones on a CPU, and on a GPU."""

Workers = Mapping[str, Worker]
"""By the key of their column."""
NUM_QUALITY = 64
"""Scenes on which the choices are compared with the truth."""

_MINI_SCENE_PX = 128
_NUM_WATCHED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for."""

    images: str | None
    """A folder of photographs; None draws scenes."""
    weights: Weights
    device: str
    num_images: int | None = None
    """None takes what suits weights and device."""
    repeats: int = 3
    num_quality: int = NUM_QUALITY
    sizes: Sizes = FULL
    """Of the models that random weights make."""
    threads: int | None = None
    """Of every column; None takes all cores."""


def run(request: Request, progress: Callable[[str], None]) -> Row:
    """Measure all columns; returns what ``lism-flism.json`` holds.

    Args:
        request: what to measure.
        progress: told in a few words what is going on.

    Raises:
        GlitError: a model or an image is not there, or a column failed.
        StoppedError: Ctrl-C; all processes are gone.
    """
    for extra in ("models", "sam", "train"):
        require(extra, needed_for="glit bench lism-flism")
    device = pick_device(request.device).type
    with tempfile.TemporaryDirectory(prefix="glit-bench-") as folder:
        try:
            return _measure(request, device, Path(folder), progress)
        except KeyboardInterrupt as error:
            raise StoppedError("stopped; the benchmark wrote nothing") from error


def write(report: Row, folder: Path) -> list[Path]:
    """Write JSON, Markdown, PNG and SVG; their paths."""
    from glit.bench.lism_flism.plot import plot

    pictures = [folder / f"lism-flism.{end}" for end in ("png", "svg")]
    plot(report, *pictures)
    return [*write_report(folder, "lism-flism", report, page(report)), *pictures]


def _measure(request: Request, device: str, scratch: Path, progress: Callable[[str], None]) -> Row:
    images = _images(request, device, scratch)
    progress("making models with random weights" if request.weights == "random" else "models")
    models = _models(request, images, device, scratch)
    batch = with_sentences(images, models.matcher, models.recipes["flism"].split)
    jobs = [_job(request, each, models, batch, device, scratch) for each in COLUMNS]
    threads = jobs[0].threads
    with contextlib.ExitStack() as started:
        columns = {}
        for job in jobs:
            worker = Worker(f"column {job.column.title!r}", open_way, job, preload=PRELOADED)
            columns[job.column.key] = started.enter_context(contextlib.closing(worker))
        facts = _facts(columns, progress)
        warm_up = _warm_up(request, batch, device)
        for each in COLUMNS:
            progress(f"{each.title}: warming up")
            columns[each.key].call("perform", warm_up)
        passes = _rounds(columns, batch, request.repeats, facts, progress)
        watched = _watched(columns, batch, device, progress)
        quality = _quality(request, columns, models, scratch, progress)
    figures = {
        c.key: column_figures(
            c, passes[c.key], facts=facts, watched=watched.get(c.key), threads=threads
        )
        for c in COLUMNS
    }
    return {
        "benchmark": "lism-flism",
        "settings": {
            "weights": request.weights,
            "images": images.what,
            "num_images": len(batch.samples),
            "repeats": request.repeats,
            "warm_up_images": len(warm_up.samples),
            "device": device,
            "threads": threads,
            "num_fixed": request.sizes.num_fixed if request.weights == "random" else None,
        },
        "machine": describe_machine(device),
        "versions": versions(),
        "columns": figures,
        "ratios": ratios(passes),
        "parameters": {
            c.method: parameters(**facts[c.key]["parameters"]) for c in COLUMNS if not c.in_glit
        },
        "projections": project({k: each["total_s"]["median"] for k, each in figures.items()}),
        "quality": quality,
        "num_quality": request.num_quality if quality else 0,
        "notes": [*images.notes, *_notes(request, device)],
    }


def _images(request: Request, device: str, scratch: Path) -> Images:
    number = request.num_images
    if number is None:
        on_cpu = NUM_MINI if request.weights == "mini" else NUM_ON_CPU
        number = NUM_ON_GPU if device == "cuda" else on_cpu
    if request.images is not None:
        return photographs(request.images, num=number)
    mini = request.weights == "mini"
    return scenes(
        scratch / "scenes",
        num=number,
        side_px=_MINI_SCENE_PX if mini else request.sizes.scene_px,
        image_format="png" if mini else "jpeg",
    )


def _models(request: Request, images: Images, device: str, scratch: Path) -> Models:
    if request.weights != "random":
        return find_models(request.weights, device)
    first = images.samples[0]
    try:
        pixels = decode(images.store.read(first.source_path))
    except (OSError, ImageError) as error:
        raise InputError(f"{first.source_path}: changed while glit looked ({error})") from error
    captions = [sample.caption.text for sample in images.samples if sample.caption]
    return make_random(request.sizes, scratch / "models", captions, pixels, device)


def _job(
    request: Request, made: Column, models: Models, batch: Batch, device: str, scratch: Path
) -> Job:
    number = request.sizes.num_fixed - (NUM_GRID if made.method == "flism" else 0)
    return Job(
        column=made,
        recipe=models.recipes[made.method],
        proposer=models.proposers[made.method],
        matcher=models.matcher,
        batch=batch,
        device=device,
        threads=request.threads or usable_cores(),
        num_fixed=number if request.weights == "random" else None,
        matrix_side=request.sizes.matrix_side,
        scratch=scratch / made.key,
    )


def _facts(columns: Workers, progress: Callable[[str], None]) -> dict[str, Row]:
    """Of all columns, once every one is ready and the machine is quiet."""
    for each in COLUMNS:
        progress(f"{each.title}: loading models")
        columns[each.key].answer()
    progress("counting operations, measuring the matrix rate")
    return {each.key: columns[each.key].call("facts") for each in COLUMNS}


def _warm_up(request: Request, batch: Batch, device: str) -> Batch:
    """All images; one where a pass takes minutes (full-size models on a CPU)."""
    slow = request.weights != "mini" and device == "cpu"
    return dataclasses.replace(batch, samples=batch.samples[:1] if slow else batch.samples)


def _rounds(
    columns: Workers,
    batch: Batch,
    repeats: int,
    facts: dict[str, Row],
    progress: Callable[[str], None],
) -> dict[str, list[Row]]:
    """The counted passes, the columns in turn.

    The matrix rates in ``facts`` are measured again in every round, and the best stays: a floor
    taken while the machine was busy would be none.
    """
    passes: dict[str, list[Row]] = {each.key: [] for each in COLUMNS}
    for number in range(1, repeats + 1):
        for each in COLUMNS:
            progress(f"{each.title}: repeat {number} of {repeats}")
            process = columns[each.key]
            passes[each.key].append(process.call("perform", batch))
            if each.in_glit:
                facts[each.key] = better_rates(facts[each.key], process.call("facts"))
    return passes


def _watched(
    columns: Workers, batch: Batch, device: str, progress: Callable[[str], None]
) -> dict[str, Row]:
    """A pass of each column that records the GPU's kernels; nothing on a CPU."""
    if device != "cuda":
        return {}
    some = dataclasses.replace(batch, samples=batch.samples[:_NUM_WATCHED])
    found = {}
    for each in COLUMNS:
        progress(f"{each.title}: recording the device")
        found[each.key] = columns[each.key].call("perform", some, True)
    return found


def _quality(
    request: Request,
    columns: Workers,
    models: Models,
    scratch: Path,
    progress: Callable[[str], None],
) -> dict[str, Row] | None:
    """Choices against the truth, on scenes of their own; only the mini models know what to do."""
    if request.weights != "mini" or not request.num_quality:
        return None
    drawn = scenes(
        scratch / "truth", num=request.num_quality, side_px=_MINI_SCENE_PX, image_format="png"
    )
    batch = with_sentences(drawn, models.matcher, models.recipes["flism"].split)
    found = {}
    for each in COLUMNS:
        progress(f"{each.title}: quality on {request.num_quality} scenes")
        answer = columns[each.key].call("perform", batch)
        found[each.key] = judge(batch.samples, answer["choices"], drawn.truth)
    return found


def _notes(request: Request, device: str) -> list[str]:
    notes = []
    if request.weights == "random":
        notes += [
            f"Random weights: speed only. Every image gets {request.sizes.num_fixed} fixed regions "
            "in all columns, whatever the proposers, which run in full, found; in LISM the whole "
            "image competes as well.",
            "SAM's threshold of predicted IoU is set so that as large a share of masks passes it "
            "as with trained weights; hardly any passes the stability score after it. "
            "segment-anything therefore encodes hardly any mask as run lengths, which it does "
            "with trained weights: that favours the one-at-a-time column.",
        ]
    elif request.weights == "mini" and request.images is not None:
        notes.append("The mini models understand only glit's scenes: speed only.")
    notes += [
        "One at a time: sentences are encoded in the same call as the crops and count there; in "
        "glit they count under match.",
        "Decoding in glit is done by threads while the models work; only the wait for it is part "
        "of the total.",
        "Left out on both sides: captions, cutting them into sentences, and glit's ingest.",
    ]
    if device == "cuda":
        notes.append(
            "Device busy: time with at least one kernel running, recorded in a pass of its own, "
            "over the median total."
        )
    else:
        notes.append("Device busy: CPU seconds of the process over wall seconds times cores.")
    return notes
