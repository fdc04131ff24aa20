"""Estimate a large build from a small one: hours, money, bytes, files and tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glit.dataset.manifest import read_manifest
from glit.dataset.statistics import dataset_statistics
from glit.errors import UserError, closest
from glit.pipeline.planning.recipe import recipe_from_dict
from glit.pipeline.status import status
from glit.pipeline.work.listing import images_in_chunk
from glit.pipeline.work.state import read_state
from glit.pipeline.work.timeline import Timeline, read_timelines, units_done
from glit.stages.ingest import IngestConfig
from glit.stages.pack import PackConfig
from glit.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines of the large build; 0 takes the number that the small one had."""

    gpus: int = 0
    cores: int = 0
    gpu_name: str = ""
    """Such as ``H100``; empty for GPUs like those of the small build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """The time of one stage."""

    stage: str
    place: str
    samples: int
    """That reach it, if as large a share is dropped before it."""
    hours: tuple[float, float]
    """If its workers are never idle, and if they are as idle as in the small build."""
    source: str
    """``measured`` in the small build, or ``given``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEstimate:
    """Cost of a large build, if all grows as the number of images does."""

    images: int
    pilot_images: int
    cores: int
    gpus: int
    stages: tuple[StageEstimate, ...]
    hours: tuple[float, float]
    """Stages of one place take turns; those of different places work at the same time."""
    price: float | None
    """Price of a GPU hour, or of an hour of the machine if there are no GPUs."""
    shipped: int
    data_bytes: int
    data_files: int
    work_files: int
    caption_tokens: int | None
    """Tokens of all captions by the dataset's tokenizer; None if it counts none."""
    gpu_note: str
    """If the rates were not measured on the GPU that was named; else empty."""

    @property
    def cost(self) -> tuple[float, float] | None:
        """In the unit of the price; None without one."""
        if self.price is None:
            return None
        low, high = (hours * self.price * max(1, self.gpus) for hours in self.hours)
        return low, high


def estimate(
    dataset: str,
    *,
    images: int,
    machines: Machines,
    price: float | None = None,
    rates: Mapping[str, float] | None = None,
) -> BuildEstimate:
    """The work of :func:`glit.api.estimate`."""
    _require(images > 0, "images", images, "1 or more")
    _require(machines.gpus >= 0 and machines.cores >= 0, "machines", machines, "0 or more of each")
    _require(price is None or 0 <= price < float("inf"), "price", price, "0 or more")
    store, found = Store(dataset), status(dataset)
    if not found["complete"]:
        raise UserError(f"{dataset}: not finished; run glit build again to resume it")
    runs = [run for run in read_timelines(store.below("work")) if run.cores]
    stages = [each for each in found["stages"] if each["rows"]]
    steps = {name for run in runs for name in run.stages} - {each["stage"] for each in stages}
    stages += [{"stage": name, "rows": found["counts"]["shipped"]} for name in sorted(steps)]
    if not runs or not stages:
        raise UserError(
            f"{dataset}: the times of its build were not noted or are gone; build some hundred "
            "images anew, with the recipe and on machines like those of the large build"
        )
    rates = rates or {}
    for name, rate in rates.items():
        known = [each["stage"] for each in stages]
        if name not in known:
            raise UserError(f"--rate {name}: the build has no such stage; {closest(name, known)}")
        _require(0 < rate < float("inf"), f"rate of {name}", rate, "more than 0")
    num_tables = len(found["stages"])
    cores, gpus = machines.cores or runs[-1].cores, machines.gpus or runs[-1].gpus
    first = stages[0]["rows"]
    timed = [
        _stage(each, runs, images * each["rows"] / first, cores, gpus, rates) for each in stages
    ]
    by_place: dict[str, list[tuple[float, float]]] = {}
    for each in timed:
        by_place.setdefault(each.place, []).append(each.hours)
    low, high = (
        max(sum(hours[end] for hours in here) for here in by_place.values()) for end in (0, 1)
    )
    return BuildEstimate(
        images=images, pilot_images=first, cores=cores, gpus=gpus, stages=tuple(timed),
        hours=(low, high), price=price, gpu_note=_gpu_note(machines.gpu_name, runs, timed),
        **_sizes(store, images, num_tables),
    )  # fmt: skip


def _require(holds: bool, name: str, value: Any, wanted: str) -> None:
    if not holds:
        raise UserError(f"{name} {value}: want {wanted}")


def parse_gpus(text: str) -> tuple[int, str]:
    """The number of GPUs and their name, if there is one.

    >>> parse_gpus("8xH100"), parse_gpus("8")
    ((8, 'H100'), (8, ''))

    Raises:
        UserError: it is neither.
    """
    found = re.fullmatch(r"(\d+)(?:x(\w.*))?", text, re.ASCII)
    if found is None:
        raise UserError(f"--gpus {text}: want a number, or a number and a name such as 8xH100")
    return int(found[1]), found[2] or ""


def _gpu_note(name: str, runs: Sequence[Timeline], stages: Sequence[StageEstimate]) -> str:
    """Say where measured rates come from, unless from GPUs with all the words of this name."""
    on_gpu = [each for each in stages if each.place == "cuda"]
    if not name or (on_gpu and all(each.source == "given" for each in on_gpu)):
        return ""
    if not on_gpu:
        return f"no stage of the pilot ran on a GPU; nothing was measured on {name}"
    cards: set[str] = set()
    for run in runs:
        if any(stage.place == "cuda" for stage in run.stages.values()):
            cards.update(run.gpu_names or ["not recorded"])
    if all(_words(name) <= _words(card) for card in cards):
        return ""
    cards_text = ", ".join(sorted(cards))
    return f"rates are of the pilot's GPU ({cards_text}) and were not measured on {name}"


def _words(name: str) -> set[str]:
    return set(re.findall(r"\w+", name.casefold()))


def _stage(
    stage: Mapping[str, Any], runs: Sequence[Timeline], samples: float,
    cores: int, gpus: int, rates: Mapping[str, float],
) -> StageEstimate:  # fmt: skip
    """A stage's time on the new machines, by its work in all runs that are remembered."""
    name = stage["stage"]
    found = [(run, run.stages[name]) for run in runs if name in run.stages]
    done = units_done(runs, name)
    if not found or not (done or name in rates):
        raise UserError(f"stage {name}: its times are not known; --rate {name}=N gives them")
    place = found[-1][1].place
    units = {"cuda": gpus, "cpu": cores}.get(place, 1)
    if name in rates:
        hours = samples / (rates[name] * max(1, units)) / 3600
        at_best = at_worst = hours
    else:
        best_s = worst_s = 0.0
        rows = stage["rows"] * done / stage.get("chunks_done", done)
        for run, seen in found:
            had = {"cuda": run.gpus, "cpu": run.cores}.get(place, 1)
            best_s += had * (sum(seen.busy_s) - seen.lost_s) / max(1, seen.workers)
            worst_s += had * run.bin_s * sum(busy > 0 for busy in seen.busy_s)
        at_best, at_worst = (
            seconds / rows * samples / max(1, units) / 3600 for seconds in (best_s, worst_s)
        )
    return StageEstimate(
        stage=name, place=place, samples=round(samples), hours=(at_best, max(at_best, at_worst)),
        source="given" if name in rates else "measured",
    )  # fmt: skip


def _sizes(store: Store, images: int, num_stages: int) -> dict[str, Any]:
    """Samples, bytes, files and tokens of the large dataset."""
    manifest = read_manifest(store)
    recipe = recipe_from_dict(read_state(store.below("work")).recipe)
    shipped = round(images * manifest.counts.shipped / manifest.counts.ingested)
    of_data = sum(entry.bytes for entry in manifest.data_files.values())
    num_bytes = round(of_data / manifest.counts.shipped * shipped)
    pack = recipe.of(PackConfig)
    chunk = images_in_chunk(recipe.of(IngestConfig).chunk_size, images)
    tokens = dataset_statistics(store, manifest).tokens
    return {
        "shipped": shipped,
        "data_bytes": num_bytes,
        "data_files": max(pack.min_files, math.ceil(num_bytes / (pack.max_file_mb << 20))),
        "work_files": math.ceil(images / chunk) * (num_stages + 1),  # and the ledger
        "caption_tokens": None if tokens is None else round(tokens.mean * shipped),
    }
