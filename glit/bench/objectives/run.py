"""Every objective at the best learning rate of one grid, with several seeds.

    OUT/data/train-1200/               the dataset, built once
    OUT/runs/1200/clip/0.0001-0/       a run: its learning rate and its seed
    OUT/objectives.md, objectives.json what has been measured so far, written anew after every run

What has ended is not done again, and what was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glit.bench.harness import kept, write_report
from glit.bench.objectives.job import keep_model_alone, remove_models, trained
from glit.bench.objectives.measure import Measured, measure, of_regions, validate
from glit.bench.objectives.table import ObjectiveRow, page
from glit.bench.objectives.variants import Rates, Variant
from glit.bench.objectives.world import World
from glit.errors import InputError, UserError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import open_embedder
from glit.evaluation.scorers.finelip import FineLipScore
from glit.planning.recipe import load_table
from glit.runtime.process_state import without_bars
from glit.runtime.tables import Table, markdown
from glit.training.config import TrainConfig
from glit.training.objective import Objective
from glit.training.objectives import OBJECTIVES
from glit.training.run_file import NAME as RUN_FILE
from glit.training.run_file import contradictions

ALL = tuple(name for name in OBJECTIVES if name not in ("goal", "hard-negatives", "f-cast"))
"""Compared unless named: all but a second name, one that is made for a second stage, and one that
begins with random weights, which need many more steps than the others."""
WITHOUT_NEGATIVES = tuple(name for name in ALL if OBJECTIVES[name]().needs.num_negatives == 0)
"""The same on a dataset without false sentences."""
MINI_STARTS = ("mini-clip", "mini-matcher")
"""Bundled models to start from. ``mini-clip`` was trained on whole images and short captions and
hardly distinguishes shapes; ``mini-matcher`` was trained on regions and does."""
SETTINGS: Mapping[str, Sequence[str]] = {
    "long-clip": ("train.num_components=8",),
    "f-cast": (
        "train.encoders_start=clip",
        "train.depths=[1,1,2,2]",
        "train.text_depths=[3,1]",
        "train.num_segments=[64,32,16,8]",
        "train.context=77",
    ),
}
"""Settings in place of the papers' own, which make no sense with batches of 32 and pictures of 128
pixels. For runs that start from a mini model."""
SCORES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "finelip": {
        "": {"scorer": "finelip"},
        "starred score": {"scorer": "finelip", "options": FineLipScore(global_weight=0.5)},
        "cosine": {"scorer": "cosine"},
    },
    **{
        name: {"": {}, "by patches": {"scorer": "sentence-patches"}}
        for name, objective in OBJECTIVES.items()
        if objective().needs.pooled_patches
    },
}
"""Keys of ``[evaluate]`` for objectives that are not measured by the cosine alone, a row each; the
first score chooses learning rates. Those that train patches are measured by them too."""
MODULE_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Grid of the learning rates of an objective's own parameters, times its default."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """The request for a comparison."""

    output: Path
    world: World
    objectives: Sequence[str] = ALL
    """The first is the baseline: the table gives the differences of the others from it."""
    sizes: Sequence[int] = (1200,)
    """Training samples, a table for each."""
    lrs: Sequence[float] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    """The grid, climbed from its middle."""
    num_seeds: int = 3
    epochs: int = 3
    batch_size: int = 32
    together: int = 1
    """``train.together``: 4 puts twins into one batch."""

    def __post_init__(self) -> None:
        for name in self.objectives:
            Variant(name)
        if not self.lrs or min(self.lrs) <= 0:
            raise UserError(f"--lr {list(self.lrs)}: wanted numbers above 0")
        if not self.sizes or min(self.sizes) < self.batch_size:
            raise UserError(
                f"--size {list(self.sizes)}: wanted {self.batch_size} {self.world.items} or more, "
                "one batch"
            )


def run(request: ComparisonRequest, say: Say) -> str:
    """Train and measure; returns the tables as Markdown.

    Raises:
        InputError: the folder holds a comparison under other settings.
        RunError: a training process was ended.
    """
    _check_settings(request)
    tables: dict[int, list[ObjectiveRow]] = {size: [] for size in request.sizes}
    notes: dict[int, list[str]] = {size: [] for size in request.sizes}
    for size in request.sizes:
        checked = {name: _checked(request, Variant(name)) for name in request.objectives}
        datasets = {
            name: _dataset(request, name, objective, size, say)
            for name, objective in checked.items()
        }
        tables[size].append(_start(request, say))
        for name, dataset in datasets.items():
            rows, failed = compare_one(request, Variant(name), size, dataset, say)
            tables[size] += rows
            notes[size] += failed
            _write(request, tables, notes)
    return _write(request, tables, notes)


def _checked(request: ComparisonRequest, variant: Variant) -> Objective:
    """The objective with its settings, refused before anything is trained where ``glit train``
    would refuse it.

    Raises:
        UserError: an unknown key, or a value that it cannot have.
    """
    try:
        return _table(request.world, variant).make_objective()
    except UserError as error:
        raise UserError(f"--objective {variant.name!r}: {error}") from error


def _dataset(
    request: ComparisonRequest, name: str, objective: Objective, size: int, say: Say
) -> str | Path:
    """Return the dataset that an objective is trained on; made, or refused, before any training."""
    say(f"{size} {request.world.items}: the dataset of {name}")
    negatives = objective.needs.num_negatives > 0
    try:
        return request.world.training_set(request.output / "data", size, negatives=negatives)
    except UserError as error:
        raise UserError(f"--objective {name}: {error}") from error


def _start(request: ComparisonRequest, say: Say) -> ObjectiveRow:
    say(f"{request.world.start} as it is")
    folder = request.output / "runs" / "start"
    measured = _measured(request, Variant("clip"), request.world.start, folder)
    return ObjectiveRow(name="none", lr=None, figures=[measured.figures], found=[measured.found])


def compare_one(
    request: ComparisonRequest, variant: Variant, size: int, dataset: str | Path, say: Say
) -> tuple[list[ObjectiveRow], list[str]]:
    """Its row, with one more for each further score, and what failed; no row where every learning
    rate did."""
    folder = request.output / "runs" / str(size) / variant.folder
    of = f"{variant.name} on {size} {request.world.items}"
    rates, notes = _searched(request, variant, folder, dataset, lambda text: say(f"{of}, {text}"))
    if rates is None:
        return [], notes
    scorers = SCORES.get(variant.objective, {"": {}})
    measured: dict[str, list[Measured]] = {key: [] for key in scorers}
    costs: list[dict[str, Any]] = []
    for seed in range(request.num_seeds):
        say(f"{of}, {rates}, seed {seed}")
        run_folder = folder / f"{rates.folder}-{seed}"
        cost = _trained(request, variant, rates, seed, run_folder, dataset)
        if cost is None:
            notes.append(f"{variant.name} with {rates}, seed {seed}: the loss was not finite.")
            return [], notes
        costs.append(cost)
        for key, scorer in scorers.items():
            model = str(run_folder / "last")
            measured[key].append(_measured(request, variant, model, run_folder, key, scorer))
        keep_model_alone(run_folder)
    rows = [
        ObjectiveRow(
            name=f"{variant.name}, {key}" if key else variant.name,
            lr=rates.lr,
            module_lr=rates.module,
            figures=[each.figures for each in found],
            found=[each.found for each in found],
            seconds_a_step=float(np.median([cost["seconds_a_step"] for cost in costs])),
            peak_memory_mb=max(cost["peak_memory_mb"] for cost in costs),
            parameters_added=costs[0]["parameters_added"],
        )
        for key, found in measured.items()
    ]
    return rows, notes


def _searched(
    request: ComparisonRequest, variant: Variant, folder: Path, dataset: str | Path, say: Say
) -> tuple[Rates | None, list[str]]:
    """The learning rates with the highest R@1 on the validation samples, and a note on what was
    tried; None where every run's loss became infinite or NaN."""
    validated = request.world.validated()
    notes: list[str] = []

    def score(rates: Rates) -> float:
        say(str(rates))
        run_folder = folder / f"{rates.folder}-0"
        if _trained(request, variant, rates, 0, run_folder, dataset) is None:
            notes.append(f"{variant.name} with {rates}: the loss was no longer finite.")
            return -math.inf
        return 0.0 if validated is None else _validated(request, variant, run_folder, validated)

    scores = {
        Rates(lr): found for lr, found in climbed(request.lrs, lambda lr: score(Rates(lr))).items()
    }
    best = max(scores, key=lambda rates: scores[rates])
    if scores[best] == -math.inf:
        return None, notes
    if len(request.lrs) > 1 and best.lr in (min(request.lrs), max(request.lrs)):
        notes.append(f"{variant.name}: {best.lr:g} is an end of the grid.")
    own = variant.module_lr
    if len(request.lrs) > 1 and own is not None:
        grid = [own * factor for factor in MODULE_FACTORS]
        of = {lr: best if lr == own else Rates(best.lr, lr) for lr in grid}
        found = climbed(grid, lambda lr: scores[best] if lr == own else score(of[lr]))
        scores |= {of[lr]: each for lr, each in found.items()}
        best = max(scores, key=lambda rates: scores[rates])
        if best.module in (grid[0], grid[-1]):
            notes.append(f"{variant.name}: {best.short} is an end of the grid of its own rates.")
    for rates in scores:
        if rates != best:
            remove_models(folder / f"{rates.folder}-0")
    if validated is not None:
        ended = sorted((r for r in scores if scores[r] > -math.inf), key=lambda r: r.order)
        tried = ", ".join(f"{rates.short} {100 * scores[rates]:.1f}" for rates in ended)
        of_items = f"validation {request.world.items}"
        notes.append(f"{variant.name}, R@1 on {of_items} by learning rate: {tried}.")
    return best, notes


def climbed(lrs: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Scores of the rates tried: the grid's middle, then neighbours of the best while that moves.

    The best of them is the grid's best wherever scores rise to one summit.
    """
    grid = sorted(lrs)
    at = len(grid) // 2
    scores = {grid[at]: score(grid[at])}
    while True:
        for rate in grid[max(0, at - 1) : at + 2]:
            if rate not in scores:
                scores[rate] = score(rate)
        # of rates that all fail, as too high ones do, the lowest leads on
        best = grid.index(max(scores, key=lambda rate: (scores[rate], -rate)))
        if best == at:
            return scores
        at = best


def _trained(
    request: ComparisonRequest,
    variant: Variant,
    rates: Rates,
    seed: int,
    folder: Path,
    dataset: str | Path,
) -> dict[str, Any] | None:
    """Return the costs of a run; None for one that failed.

    Raises:
        InputError: the folder holds a run with other settings, as of another recipe or release.
        RunError: the process was ended.
    """
    changes = _settings(request, variant, rates, seed)
    if (folder / RUN_FILE).is_file():
        config = load_table(TrainConfig, request.world.recipe, overrides=changes)
        if other := contradictions(folder, config):
            raise InputError(f"{folder}: now wanted {other}; choose another folder with -o")
    words = (word for each in changes for word in ("--set", each))
    return trained(folder, dataset, ["-r", request.world.recipe, *words])


def _settings(request: ComparisonRequest, variant: Variant, rates: Rates, seed: int) -> list[str]:
    """Return the overrides of the recipe's table ``train`` for one run: ``train.key=value``,
    each."""
    world = request.world
    return [
        f"train.objective={variant.objective}",
        f"train.model={json.dumps(world.start)}",
        f"train.batch_size={request.batch_size}",
        f"train.together={request.together}",
        *world.settings,
        f"train.epochs={request.epochs}",
        f"train.lr={rates.lr:g}",
        f"train.seed={seed}",
        "train.trackers=[]",
        *([] if rates.module is None else [variant.with_module_lr(rates.module)]),
        *_own_settings(world, variant),
    ]


def _table(world: World, variant: Variant) -> TrainConfig:
    """The table ``train`` of a variant, but for rates, seeds and epochs."""
    settings = [f"train.objective={variant.objective}", *world.settings]
    own = _own_settings(world, variant)
    return load_table(TrainConfig, world.recipe, overrides=[*settings, *own])


def _own_settings(world: World, variant: Variant) -> list[str]:
    """Overrides of ``[train]`` for this variant alone; later ones count."""
    for_mini = SETTINGS.get(variant.objective, ()) if world.start in MINI_STARTS else ()
    return [*for_mini, *variant.settings]


def _embedder(
    request: ComparisonRequest, variant: Variant, model: str, scorer: Mapping[str, Any]
) -> tuple[Any, EvaluateConfig]:
    table = _table(request.world, variant)
    config = request.world.evaluation(context=table.context, image_fit=table.image_fit)
    if scorer:
        config = replace(config, **{"options": None, **scorer})
    with without_bars():
        return open_embedder(model, config), config


def _validated(
    request: ComparisonRequest, variant: Variant, folder: Path, collection: Collection
) -> float:
    """Mean R@1 of both ways on the validation samples, 0 to 1; cached in the run's folder."""

    def score() -> dict[str, float]:
        scorer = SCORES.get(variant.objective, {"": {}})[""]
        opened = _embedder(request, variant, str(folder / "last"), scorer)
        return {"recall@1": validate(*opened, collection)}

    return kept(folder / "validation.json", score)["recall@1"]


def _measured(
    request: ComparisonRequest,
    variant: Variant,
    model: str,
    folder: Path,
    key: str = "",
    scorer: Mapping[str, Any] | None = None,
) -> Measured:
    """All figures of a model by a score; kept in its folder, the figures last."""
    suffix = f"-{key.replace(' ', '-')}" if key else ""

    def figures() -> dict[str, float]:
        opened = _embedder(request, variant, model, scorer or {})
        folder.mkdir(parents=True, exist_ok=True)
        regions = kept(folder / "regions.json", lambda: of_regions(*opened, request.world))
        measured = measure(*opened, request.world)
        np.save(folder / f"found{suffix}.npy", measured.found)
        return measured.figures | regions

    return Measured(
        figures=kept(folder / f"figures{suffix}.json", figures),
        found=np.load(folder / f"found{suffix}.npy"),
    )


def _check_settings(request: ComparisonRequest) -> None:
    """Refuse to mix runs of other settings; objectives, sizes and seeds may be added."""
    path = request.output / "settings.json"
    own = {
        "lrs": sorted(request.lrs),
        "epochs": request.epochs,
        "batch_size": request.batch_size,
        "together": request.together,
        "world": request.world.told(),
    }
    before = kept(path, lambda: own)
    other = [key for key in own if before.get(key) != own[key]]
    if other:
        found = ", ".join(f"{key} {before.get(key)}, now {own[key]}" for key in other)
        raise InputError(
            f"{request.output}: holds a comparison with {found}; choose another folder with -o"
        )


def _write(
    request: ComparisonRequest,
    tables: Mapping[int, Sequence[ObjectiveRow]],
    notes: Mapping[int, Sequence[str]],
) -> str:
    blocks: list[str | Table] = []
    values: dict[str, Any] = {}
    keys = [key for key in ObjectiveRow.__dataclass_fields__ if key != "found"]
    for size, rows in tables.items():
        if not rows:
            continue
        values[str(size)] = [{key: getattr(row, key) for key in keys} for row in rows]
        searched = len(rows[0].found[0][0])
        title = (
            f"{size} {request.world.items}, {request.epochs} epochs in batches of "
            f"{request.batch_size}, {request.num_seeds} seeds; {searched} searched"
        )
        blocks += page(title, rows, notes[size], further=request.world.further_columns)
    write_report(request.output, "objectives", values, blocks)
    return markdown(blocks)
