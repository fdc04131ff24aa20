"""Every objective at the best learning rate of one grid, with several seeds.

    OUT/runs/clip/0.0001-0/            a run: its learning rate and its seed
    OUT/objectives.md, objectives.json what has been measured so far, written anew after every run

What has ended is not done again, and what was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glit.bench.harness import kept, write_report
from glit.bench.objectives.datasets import Datasets
from glit.bench.objectives.job import keep_model_alone, remove_models, trained
from glit.bench.objectives.measure import Measured, hits, measure, of_regions
from glit.bench.objectives.table import ObjectiveRow, page
from glit.bench.objectives.variants import Variant
from glit.dataset.reader import Dataset
from glit.errors import InputError, UserError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import open_embedder
from glit.evaluation.scorers.finelip import FineLipScore
from glit.runtime.process_state import without_bars
from glit.runtime.tables import markdown
from glit.training.config import TrainConfig
from glit.training.objectives import OBJECTIVES
from glit.training.run_file import NAME as RUN_FILE
from glit.training.run_file import differences, settings, settings_of

ALL = tuple(name for name in OBJECTIVES if name not in ("goal", "hard-negatives", "f-cast"))
"""Compared unless named: all but a second name, one that is made for a second stage, and one that
begins with random weights, which need many more steps than the others."""
WITHOUT_NEGATIVES = tuple(name for name in ALL if OBJECTIVES[name]().needs.num_negatives == 0)
"""The same on a dataset without false sentences."""
_SCORES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
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

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """The request for a comparison."""

    output: Path
    datasets: Datasets
    objectives: Sequence[str] = ALL
    """The first is the baseline: the table gives the differences of the others from it."""
    lrs: Sequence[float]
    """The grid, climbed from its middle."""
    num_seeds: int = 3
    epochs: int | None = None
    """Passes over the training set; None for the recipe's."""
    together: int = 1
    """``train.together``: so many neighbouring samples are in one batch."""

    def __post_init__(self) -> None:
        for name in self.objectives:
            Variant(name)
        if not self.lrs or min(self.lrs) <= 0:
            raise UserError(f"--lr {list(self.lrs)}: wanted numbers above 0")

    def settings(self, variant: Variant) -> list[str]:
        """Overrides of ``train`` for the runs of a variant, without rate and seed."""
        epochs = [] if self.epochs is None else [f"train.epochs={self.epochs}"]
        own = [f"train.together={self.together}", *epochs, "train.trackers=[]"]
        return [*self.datasets.settings, *own, *variant.settings]


def run(request: ComparisonRequest, say: Say) -> str:
    """Train and measure; returns the table as Markdown.

    Raises:
        InputError: the folder holds a comparison under other settings.
        RunError: a training process was ended.
    """
    variants = [Variant(name) for name in request.objectives]
    for variant in variants:  # refused before anything is trained
        _check(request, variant)
    _check_folder(request)
    model = request.datasets.config().model
    say(f"{model} as it is")
    start = _measured(request, Variant("clip"), model, request.output / "runs" / "start")
    rows = [ObjectiveRow(name="none", lr=None, figures=[start.figures], found=[start.found])]
    notes: list[str] = []
    text = _write(request, rows, notes)
    for variant in variants:
        more, failed = _compare(request, variant, say)
        rows += more
        notes += failed
        text = _write(request, rows, notes)
    return text


def _check(request: ComparisonRequest, variant: Variant) -> None:
    """Refuse settings that ``glit train`` would refuse.

    Raises:
        UserError: an unknown key, a value that it cannot have, or a dataset that lacks what the
            objective learns from.
    """
    datasets = request.datasets
    try:
        objective = _table(request, variant).make_objective()
    except UserError as error:
        raise UserError(f"--objective {variant.name!r}: {error}") from error
    if objective.needs.num_negatives and not datasets.has_negatives:
        raise UserError(
            f"--objective {variant.name}: {datasets.train} has no false sentences; build it with "
            "--set negatives.enabled=true, or name other objectives"
        )


def _compare(
    request: ComparisonRequest, variant: Variant, say: Say
) -> tuple[list[ObjectiveRow], list[str]]:
    """Its row, with one more for each further score, and what failed; no row where every learning
    rate did."""
    folder = request.output / "runs" / variant.folder
    lr, notes = _best_rate(request, variant, folder, lambda text: say(f"{variant.name}, {text}"))
    if lr is None:
        return [], notes
    scorers = _SCORES.get(variant.objective, {"": {}})
    measured: dict[str, list[Measured]] = {key: [] for key in scorers}
    costs: list[dict[str, Any]] = []
    for seed in range(request.num_seeds):
        say(f"{variant.name}, learning rate {lr:g}, seed {seed}")
        run_folder = folder / f"{lr:g}-{seed}"
        cost = _trained(request, variant, lr, seed, run_folder)
        if cost is None:
            notes.append(f"{variant.name} with {lr:g}, seed {seed}: the loss was not finite.")
            return [], notes
        costs.append(cost)
        for key, scorer in scorers.items():
            model = str(run_folder / "last")
            measured[key].append(_measured(request, variant, model, run_folder, key, scorer))
        keep_model_alone(run_folder)
    rows = [
        ObjectiveRow(
            name=f"{variant.name}, {key}" if key else variant.name,
            lr=lr,
            figures=[each.figures for each in found],
            found=[each.found for each in found],
            seconds_a_step=float(np.median([cost["seconds_a_step"] for cost in costs])),
            peak_memory_mb=max(cost["peak_memory_mb"] for cost in costs),
            parameters_added=costs[0]["parameters_added"],
        )
        for key, found in measured.items()
    ]
    return rows, notes


def _best_rate(
    request: ComparisonRequest, variant: Variant, folder: Path, say: Say
) -> tuple[float | None, list[str]]:
    """The learning rate with the highest R@1 on the validation samples, and a note on what was
    tried; None where every run's loss became infinite or NaN."""
    validation = request.datasets.validated
    notes: list[str] = []

    def score(lr: float) -> float:
        say(f"learning rate {lr:g}")
        run_folder = folder / f"{lr:g}-0"
        if _trained(request, variant, lr, 0, run_folder) is None:
            notes.append(f"{variant.name} with {lr:g}: the loss was no longer finite.")
            return -math.inf
        if validation is None:
            return 0.0
        samples = validation
        scorer = _SCORES.get(variant.objective, {"": {}})[""]

        def recall() -> dict[str, float]:
            opened = _embedder(request, variant, str(run_folder / "last"), scorer)
            return {"recall@1": float(hits(*opened, samples).mean())}

        return kept(run_folder / "validation.json", recall)["recall@1"]

    scores = climbed(request.lrs, score)
    best = max(scores, key=lambda lr: scores[lr])
    if scores[best] == -math.inf:
        return None, notes
    if len(request.lrs) > 1 and best in (min(request.lrs), max(request.lrs)):
        notes.append(f"{variant.name}: {best:g} is an end of the grid.")
    for lr in scores.keys() - {best}:
        remove_models(folder / f"{lr:g}-0")
    if validation is not None:
        ended = sorted(lr for lr in scores if scores[lr] > -math.inf)
        tried = ", ".join(f"{lr:g} {100 * scores[lr]:.1f}" for lr in ended)
        notes.append(f"{variant.name}, R@1 on validation samples by learning rate: {tried}.")
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
    request: ComparisonRequest, variant: Variant, lr: float, seed: int, folder: Path
) -> dict[str, Any] | None:
    """Return the costs of a run; None for one that failed.

    Raises:
        InputError: the folder holds a run with other settings, as of another recipe or release.
        RunError: the process was ended.
    """
    recipe = request.datasets.recipe
    changes = [*request.settings(variant), f"train.lr={lr:g}", f"train.seed={seed}"]
    config = request.datasets.config(*changes)
    if (folder / RUN_FILE).is_file() and (
        other := differences(settings_of(folder), settings(config))
    ):
        raise InputError(f"{folder}: now wanted {other}; choose another folder with -o")
    words = (word for each in changes for word in ("--set", each))
    return trained(folder, request.datasets.train, ["-r", recipe, *words])


def _table(request: ComparisonRequest, variant: Variant) -> TrainConfig:
    """The table ``train`` of a variant, but for rate and seed."""
    return request.datasets.config(*request.settings(variant))


def _embedder(
    request: ComparisonRequest, variant: Variant, model: str, scorer: Mapping[str, Any]
) -> tuple[Any, EvaluateConfig]:
    table = _table(request, variant)
    config = request.datasets.evaluation(context=table.context, image_fit=table.image_fit)
    if scorer:
        config = replace(config, **{"options": None, **scorer})
    with without_bars():
        return open_embedder(model, config), config


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
        opened, tested = _embedder(request, variant, model, scorer or {}), request.datasets.tested
        folder.mkdir(parents=True, exist_ok=True)
        regions = kept(folder / "regions.json", lambda: of_regions(*opened, tested))
        measured = measure(*opened, tested)
        np.save(folder / f"found{suffix}.npy", measured.found)
        return measured.figures | regions

    return Measured(
        figures=kept(folder / f"figures{suffix}.json", figures),
        found=np.load(folder / f"found{suffix}.npy"),
    )


def _check_folder(request: ComparisonRequest) -> None:
    """Refuse to mix runs of other settings; objectives and seeds may be added."""
    own = {
        "lrs": sorted(request.lrs),
        "epochs": request.epochs,
        "together": request.together,
        "datasets": request.datasets.identity(),
    }
    before = kept(request.output / "settings.json", lambda: own)
    other = [key for key in own if before.get(key) != own[key]]
    if other:
        found = ", ".join(f"{key} {before.get(key)}, now {own[key]}" for key in other)
        raise InputError(
            f"{request.output}: holds a comparison with {found}; choose another folder with -o"
        )


def _write(request: ComparisonRequest, rows: Sequence[ObjectiveRow], notes: Sequence[str]) -> str:
    keys = [key for key in ObjectiveRow.__dataclass_fields__ if key != "found"]
    values = [{key: getattr(row, key) for key in keys} for row in rows]
    config = request.datasets.config()
    title = (
        f"{len(Dataset(request.datasets.train))} samples, {request.epochs or config.epochs} epochs "
        f"in batches of {config.batch_size}, {request.num_seeds} seeds; {len(rows[0].found[0][0])} "
        "searched"
    )
    blocks = page(title, rows, notes)
    write_report(request.output, "objectives", values, blocks)
    return markdown(blocks)
