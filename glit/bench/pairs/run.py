"""Scenes of several seeds and levels, built once, paired by every rule, compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.bench.harness import Row, write_report
from glit.bench.pairs.measure import Judged, calibrated, judged, measure
from glit.bench.pairs.support import check_captions, page_of_captions
from glit.bench.scenes import LEVELS, build_scenes, scenes_folder, write_few_remarks
from glit.bench.tables import Page, Table, with_half_range
from glit.errors import InputError
from glit.recipes.config import as_table
from glit.rules.calibration import Calibration
from glit.scenes.layout import SPLITS
from glit.stages.ground import GroundConfig
from glit.stages.pair import PairConfig, identity_of_scores
from glit.stages.recipe import load_recipe

RECIPE = "glit-mini"
"""Whose table ``[pair]`` is the recommended one."""
RULES_COMPARED: Mapping[str, tuple[str, ...]] = {
    "argmax": ("rule=argmax",),
    "lism": ("rule=lism",),
    "centred": ("rule=centred", "logit_scale=40"),
    "dual-softmax": ("rule=dual-softmax", "logit_scale=40"),
    "sinkhorn": ("rule=sinkhorn", "logit_scale=40"),
    "mutual": ("rule=mutual", "logit_scale=40"),
    "centred, phrases": ("rule=centred", "logit_scale=40", "phrase_weight=0.5"),
    "centred, detector": ("rule=centred", "logit_scale=40", "detector_bonus=4"),
}
"""Keys of ``[pair]`` by the name in the table; the recommended ones are measured besides."""
HALVED_AND_DOUBLED = ("logit_scale", "phrase_weight", "detector_bonus")
FEW_REMARKS = "hard, few remarks"
MEASURED_LEVELS = (*LEVELS, FEW_REMARKS)
"""The last is only measured, never fitted on."""
GROUNDED = "grounded-mini"
"""The recipe with a grounder, measured beside the others."""
CROPS = ("context", "blur")
"""Other ways of showing a region, compared on hard scenes."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    output: Path
    num_scenes: int = 300
    """Scenes of each seed."""
    num_seeds: int = 3
    """Seeds of the test split, for each level."""


def run(request: Request, say: Say) -> Row:
    """Build, fit, measure, and write ``pairs.json``, ``pairs.md`` and two calibrations.

    Returns what ``pairs.json`` holds.

    Calibrations are fitted on scenes of the validation split and measured on those of the test
    split; none sees a seed it is measured on.
    """
    first = SPLITS["validation"][0] + 40
    fitting = {
        level: _scenes(request, level, first + number, say) for number, level in enumerate(LEVELS)
    }
    scores = next(iter(fitting.values()))[0]
    samples = {level: found for level, (_, found) in fitting.items()}
    configs = {name: _config(words) for name, words in RULES_COMPARED.items()}
    configs["recommended"] = best = _config(())
    fitted = {
        name: _fitted(config, samples.values(), scores, "scenes of all levels")
        for name, config in configs.items()
    }
    elsewhere = {
        level: _fitted(best, [v for k, v in samples.items() if k != level], scores, "elsewhere")
        for level in LEVELS
    }
    elsewhere[FEW_REMARKS] = elsewhere["hard"]
    measured: list[Row] = []
    for number, level in enumerate(MEASURED_LEVELS):
        for repeat in range(request.num_seeds):
            seed = SPLITS["test"][0] + 40 + 10 * repeat + number
            _, found = _scenes(request, level, seed, say)
            for name, rule, calibration, on in _variants(configs, fitted, elsewhere[level], level):
                figures = measure(found, rule, calibration)
                told = {"rule": name, "level": level, "seed": seed, "fitted_on": on}
                measured.append({**told, "figures": figures})
    measured += _other_crops(request, best, say)
    measured += _grounded(request, say)
    checked, support = check_captions(request.output, request.num_scenes, request.num_seeds, say)
    best_fitted = dataclasses.replace(fitted["recommended"], support=support)
    report = {
        "measured": measured,
        "calibration": dataclasses.asdict(best_fitted),
        "captions": checked,
        "num_scenes": request.num_scenes,
    }
    write_report(request.output, "pairs", report, page(report))
    _write(best_fitted, request.output / "calibration.json")
    return report


def _write(calibration: Calibration, path: Path) -> None:
    text = json.dumps(calibration.as_dict(), indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def _variants(
    configs: Mapping[str, PairConfig],
    fitted: Mapping[str, Calibration],
    elsewhere: Calibration,
    level: str,
) -> Sequence[tuple[str, Any, Calibration | None, str]]:
    """Name, rule, calibration and what that was fitted on."""
    found: list[tuple[str, Any, Calibration | None, str]] = []
    for name, config in configs.items():
        found.append((name, config.make_rule(), None, ""))
        found.append((name, config.make_rule(), fitted[name], "all levels"))
    best = configs["recommended"]
    others = [each for each in LEVELS if not level.startswith(each)]
    found.append(("recommended", best.make_rule(), elsewhere, ", ".join(others)))
    for key in HALVED_AND_DOUBLED:
        value = best.rule_table()[key]
        for word, factor in (("halved", 0.5), ("doubled", 2.0)):
            changed = min(value * factor, 1.0) if key == "phrase_weight" else value * factor
            rule = _config((f"{key}={changed}",)).make_rule()
            found.append((f"{key} {word}", rule, None, ""))
    return found


def _config(words: Sequence[str], base: str = "") -> PairConfig:
    bare = ["pair.calibration=", "pair.min_probability=0"]
    named = any(word.startswith("rule=") for word in words)
    base = base or ("mini" if named else RECIPE)
    changes = [*bare, *(f"pair.{word}" for word in words)]
    return load_recipe(base, overrides=changes).of(PairConfig)


def _other_crops(request: Request, best: PairConfig, say: Say) -> Iterator[Row]:
    """The recommended rule over regions that are shown in another way."""
    for crop in CROPS:
        words = (f"score.crop={crop}",)
        scores, samples = _scenes(request, "hard", SPLITS["validation"][0] + 42, say, words)
        fitted = _fitted(best, [samples], scores, "hard")
        for repeat in range(request.num_seeds):
            seed = SPLITS["test"][0] + 42 + 10 * repeat
            _, found = _scenes(request, "hard", seed, say, words)
            for calibration, on in ((None, ""), (fitted, "hard")):
                told = {"rule": f"recommended, crop {crop}", "level": "hard", "seed": seed}
                figures = measure(found, best.make_rule(), calibration)
                yield {**told, "fitted_on": on, "figures": figures}


def _grounded(request: Request, say: Say) -> Iterator[Row]:
    """Recipe ``grounded-mini`` on every level; writes ``calibration-grounded.json``."""
    config = _config((), GROUNDED)
    table = as_table(load_recipe(GROUNDED).of(GroundConfig))
    keys = ("enabled", "model", "threshold", "nms_iou")
    words = [f"ground.{key}={json.dumps(table[key])}" for key in keys]
    fitting = [
        _scenes(request, level, SPLITS["validation"][0] + 40 + number, say, words)
        for number, level in enumerate(LEVELS)
    ]
    calibration = _fitted(config, [found for _, found in fitting], fitting[0][0], "scenes")
    _write(calibration, request.output / "calibration-grounded.json")
    for number, level in enumerate(MEASURED_LEVELS):
        for repeat in range(request.num_seeds):
            seed = SPLITS["test"][0] + 40 + 10 * repeat + number
            _, found = _scenes(request, level, seed, say, words)
            for fitted, on in ((None, ""), (calibration, "all levels")):
                figures = measure(found, config.make_rule(), fitted)
                told = {"rule": GROUNDED, "level": level, "seed": seed, "fitted_on": on}
                yield {**told, "figures": figures}


def _fitted(config: PairConfig, samples: Any, scores: dict[str, Any], where: str) -> Calibration:
    together = [sample for found in samples for sample in found]
    made = calibrated(together, config.make_rule(), table=config.rule_table(), scores=scores)
    return dataclasses.replace(made, fitted_on={**made.fitted_on, "where": where})


def _scenes(
    request: Request, level: str, seed: int, say: Say, words: Sequence[str] = ()
) -> tuple[dict[str, Any], list[Judged]]:
    """What gave the scores, and the judged samples of scenes, which are built if they are not."""
    painted = "hard" if level == FEW_REMARKS else level
    folder = captions = scenes_folder(request.output, painted, seed, request.num_scenes)
    if level == FEW_REMARKS:
        captions = folder / "few-remarks"
        write_few_remarks(folder / "ground_truth.parquet", captions, seed=seed)
    say(f"{level} scenes, seed {seed}{', ' if words else ''}{', '.join(words)}")
    name = "-".join(["dataset", *(word.partition("=")[2].strip('"') for word in words)])
    dataset = build_scenes(
        folder, captions / name, captions=captions / "captions.jsonl",
        settings=["score.phrases=true", *words],
    )  # fmt: skip
    found = list(judged(dataset, captions / "ground_truth.parquet"))
    if not found:
        raise InputError(f"{folder}: no sample was left")
    manifest = dataset.manifest
    return identity_of_scores(manifest["models"], manifest["recipe"]["score"]), found


FIGURES = {
    "best": "best_right",
    "AP": "average_precision",
    "removed": "removed",
    "right pairs": "right",
    "ambient": "ambient",
    "ECE": "calibration_error",
}
"""Keys of :func:`glit.bench.pairs.measure.measure` by the heads of the table."""


def page(report: Row) -> Page:
    """Mean over the seeds and, in brackets, half the range; one table a level."""
    blocks: list[str | Table] = [
        f"{report['num_scenes']} scenes a seed. *best*: the best pair of an image is a true object "
        "pair. *AP*: average precision over all pairs. *removed*: wrong pairs that fall away while "
        "95 % of the right ones stay. *ECE*: expected calibration error. Calibrations are fitted "
        "on other seeds.",
    ]
    for level in MEASURED_LEVELS:
        of_level = [each for each in report["measured"] if each["level"] == level]
        rows = []
        for name, on in dict.fromkeys((each["rule"], each["fitted_on"]) for each in of_level):
            own = [e["figures"] for e in of_level if (e["rule"], e["fitted_on"]) == (name, on)]
            cells = [with_half_range([f[key] for f in own]) for key in FIGURES.values()]
            rows.append([name, on, *cells])
        blocks.append(f"**{level}**")
        blocks.append(Table(heads=["rule", "fitted on", *FIGURES], rows=rows, words=2))
    return [*blocks, *page_of_captions(report["captions"])]
