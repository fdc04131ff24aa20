"""The benchmark from the request to the report."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from glit.bench.harness import ProcessWorker, Row, write_report
from glit.bench.lism_flism.columns import PRELOADED, BenchImages, columns_on
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.inputs import photographs, scenes, with_sentences
from glit.bench.lism_flism.models import FULL, Models, Sizes, Weights, find_models, make_random
from glit.bench.lism_flism.report import column_figures, page, ratios
from glit.bench.lism_flism.scripts import OneAtATime
from glit.bench.machine import describe_machine, versions
from glit.bench.scenes import judge
from glit.errors import InputError, StoppedError
from glit.images import ImageError, decode
from glit.models.device import pick_device
from glit.recipes.extras import require
from glit.runtime.cores import usable_cores
from glit.runtime.process_state import without_bars

NUM_MINI, NUM_ON_CPU, NUM_ON_GPU = 8, 2, 64
"""Images unless the user says otherwise: mini models, full-size ones on a CPU, and on a GPU."""

NUM_QUALITY = 64
"""Scenes on which the choices are compared with the truth."""

_MINI_SCENE_PX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The user's request."""

    images: str | None
    """A folder of photographs; None draws scenes."""
    weights: Weights
    device: str
    num_images: int | None = None
    """None takes what suits weights and device."""
    repeats: int = 3
    num_quality: int = NUM_QUALITY
    sizes: Sizes = FULL
    """Sizes of the models that random weights make."""
    threads: int | None = None
    """Threads of every column; None takes all cores."""


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
    threads = request.threads or usable_cores()
    # one image where a pass takes minutes: full-size models on a CPU
    slow = request.weights != "mini" and device == "cpu"
    warm_up = dataclasses.replace(batch, samples=batch.samples[:1]) if slow else batch
    measured = columns_on(device)
    with contextlib.ExitStack() as started:
        columns = {}
        for each in measured:
            job = models.job(each, device=device, threads=threads, scratch=scratch / each.key)
            way = InGlit if each.in_glit else OneAtATime
            worker = ProcessWorker(f"column {each.title!r}", way, job, preload=PRELOADED)
            columns[each.key] = started.enter_context(contextlib.closing(worker))
        titles = {each.key: each.title for each in measured}
        ask = partial(_ask, columns, titles, progress)
        for each in measured:  # all are ready and the machine is quiet before anything is timed
            progress(f"{each.title}: loading models")
            columns[each.key].wait()
        ask("warming up", warm_up)
        repeats = range(1, request.repeats + 1)
        rounds = [ask(f"repeat {number} of {request.repeats}", batch) for number in repeats]
        quality = _quality(request, ask, models, scratch)
    passes = {each.key: [found[each.key] for found in rounds] for each in measured}
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
            "num_fixed": models.num_fixed,
        },
        "machine": describe_machine(device),
        "versions": versions(),
        "columns": {each.key: column_figures(each, passes[each.key]) for each in measured},
        "ratios": ratios(passes),
        "others": max(each["others"] for found in rounds for each in found.values()),
        "quality": quality,
        "num_quality": request.num_quality if quality else 0,
        "notes": [*images.notes, *_notes(request)],
    }


def _ask(
    columns: Mapping[str, ProcessWorker],
    titles: Mapping[str, str],
    progress: Callable[[str], None],
    doing: str,
    batch: BenchImages,
) -> dict[str, Row]:
    """A pass of each column, the columns in turn."""
    found = {}
    for key, column in columns.items():
        progress(f"{titles[key]}: {doing}")
        found[key] = column.call("perform", batch)
    return found


def _images(request: Request, device: str, scratch: Path) -> BenchImages:
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


def _models(request: Request, images: BenchImages, device: str, scratch: Path) -> Models:
    if request.weights != "random":
        return find_models(request.weights, device)
    first = images.samples[0]
    try:
        pixels = decode(images.store.read(first.source_path))
    except (OSError, ImageError) as error:
        raise InputError(f"{first.source_path}: changed while glit looked ({error})") from error
    with without_bars():
        return make_random(request.sizes, scratch / "models", images.captions(), pixels, device)


def _quality(
    request: Request, ask: Callable[..., dict[str, Row]], models: Models, scratch: Path
) -> dict[str, Row] | None:
    """Choices against the truth, on scenes of their own; only the mini models know what to do."""
    if request.weights != "mini" or not request.num_quality:
        return None
    drawn = scenes(
        scratch / "truth", num=request.num_quality, side_px=_MINI_SCENE_PX, image_format="png"
    )
    batch = with_sentences(drawn, models.matcher, models.recipes["flism"].split)
    answers = ask(f"quality on {request.num_quality} scenes", batch)
    return {
        key: judge(batch.samples, answer["choices"], drawn.truth) for key, answer in answers.items()
    }


def _notes(request: Request) -> list[str]:
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
    return [
        *notes,
        "One at a time: sentences are encoded in the same call as the crops and count there; in "
        "glit they count under match.",
        "Decoding in glit is done by threads while the models work; only the wait for it counts.",
        "Left out on both sides: captions, cutting them into sentences, and glit's ingest.",
    ]
