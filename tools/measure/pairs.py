"""How often pairs are right, by rule, where the truth is known: ``python -m tools.measure.pairs``.

Scenes of several seeds and levels are built once, paired by every rule, and compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.bench.harness import Row, write_report
from glit.bench.scenes import build_scenes
from glit.dataset.recorded_rules import scores_of
from glit.errors import InputError
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes.config import as_table
from glit.rules.calibration import Calibration
from glit.runtime.tables import Page, Table, markdown, with_half_range
from glit.scenes.layout import SPLITS
from glit.stages.ground import GroundConfig
from glit.stages.pair import PairConfig
from glit.storage.folder_lock import folder_lock
from tools.measure.console import ended, say
from tools.measure.judged_pairs import Judged, calibrated, judged, measure
from tools.measure.level_scenes import LEVELS, scenes_folder
from tools.measure.support import check_captions, page_of_captions

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
GROUNDED = "grounded-mini"
"""The recipe with a grounder, measured beside the others."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    output: Path
    num_scenes: int = 300
    """Scenes of each seed."""
    num_seeds: int = 3
    """Seeds of the test split, for each level."""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.pairs", description=__doc__)
    parser.add_argument("--scenes", type=int, default=300, help="scenes per seed")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per level")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench/pairs"))
    given = parser.parse_args()
    request = Request(output=given.output, num_scenes=given.scenes, num_seeds=given.seeds)
    with folder_lock(given.output):
        print(markdown(page(run(request, say))))
    say(f"wrote pairs.md, pairs.json and calibration.json in {given.output}")


def run(request: Request, say: Say) -> Row:
    """Build, fit, measure, and write ``pairs.json``, ``pairs.md`` and two calibrations.

    Returns what ``pairs.json`` holds.

    Calibrations are fitted on scenes of the validation split and measured on those of the test
    split; none sees a seed it is measured on.
    """
    rules = {name: _config(words) for name, words in RULES_COMPARED.items()}
    measured, fitted = _compared(request, {**rules, "recommended": _config(())}, say)
    grounded, of_grounded = _compared(request, {GROUNDED: _config((), GROUNDED)}, say, _grounder())
    checked, support = check_captions(request.output, request.num_scenes, request.num_seeds, say)
    best = dataclasses.replace(fitted["recommended"], support=support)
    report = {
        "measured": measured + grounded,
        "calibration": dataclasses.asdict(best),
        "captions": checked,
        "num_scenes": request.num_scenes,
    }
    write_report(request.output, "pairs", report, page(report))
    for name, calibration in (("", best), ("-grounded", of_grounded[GROUNDED])):
        text = json.dumps(calibration.as_dict(), indent=2, sort_keys=True)
        path = request.output / f"calibration{name}.json"
        path.write_text(text + "\n", encoding="utf-8")
    return report


def _compared(
    request: Request, configs: Mapping[str, PairConfig], say: Say, words: Sequence[str] = ()
) -> tuple[list[Row], dict[str, Calibration]]:
    """Figures of rules on scenes of every level and seed, without a calibration and with one that
    was fitted on scenes of all levels; and the calibrations.

    Args:
        request: the number of scenes and seeds.
        configs: tables ``[pair]`` by the name of the rule.
        say: called with what is being done.
        words: further settings of the builds.
    """
    first, test = SPLITS["validation"][0] + 40, SPLITS["test"][0] + 40
    fitting = [
        _scenes(request, level, first + number, say, words) for number, level in enumerate(LEVELS)
    ]
    fitted = {
        name: _fitted(config, [found for _, found in fitting], fitting[0][0])
        for name, config in configs.items()
    }
    measured: list[Row] = []
    for number, level in enumerate(LEVELS):
        for seed in (test + 10 * repeat + number for repeat in range(request.num_seeds)):
            _, found = _scenes(request, level, seed, say, words)
            for name, config in configs.items():
                for calibration, on in ((None, ""), (fitted[name], "all levels")):
                    figures = measure(found, config.make_rule(), calibration)
                    told = {"rule": name, "level": level, "seed": seed, "fitted_on": on}
                    measured.append({**told, "figures": figures})
    return measured, fitted


def _grounder() -> list[str]:
    """The settings with which a build also grounds phrases."""
    table = as_table(load_recipe(GROUNDED).of(GroundConfig))
    keys = ("enabled", "model", "threshold", "nms_iou")
    return [f"ground.{key}={json.dumps(table[key])}" for key in keys]


def _config(words: Sequence[str], base: str = "") -> PairConfig:
    bare = ["pair.calibration=", "pair.min_probability=0"]
    named = any(word.startswith("rule=") for word in words)
    base = base or ("mini" if named else RECIPE)
    changes = [*bare, *(f"pair.{word}" for word in words)]
    return load_recipe(base, overrides=changes).of(PairConfig)


def _fitted(
    config: PairConfig, samples: Sequence[list[Judged]], scores: dict[str, Any]
) -> Calibration:
    together = [sample for found in samples for sample in found]
    made = calibrated(together, config.make_rule(), table=config.rule_table(), scores=scores)
    fitted_on = {**made.fitted_on, "where": "scenes of all levels"}
    return dataclasses.replace(made, fitted_on=fitted_on)


def _scenes(
    request: Request, level: str, seed: int, say: Say, words: Sequence[str]
) -> tuple[dict[str, Any], list[Judged]]:
    """What gave the scores, and the judged samples of scenes, which are built if they are not."""
    folder = scenes_folder(request.output, level, seed, request.num_scenes)
    say(f"{level} scenes, seed {seed}{', ' if words else ''}{', '.join(words)}")
    name = "-".join(["dataset", *(word.partition("=")[2].strip('"') for word in words)])
    dataset = build_scenes(
        folder, folder / name, captions=folder / "captions.jsonl",
        settings=["score.phrases=true", *words],
    )  # fmt: skip
    found = list(judged(dataset, folder / "ground_truth.parquet"))
    if not found:
        raise InputError(f"{folder}: no sample was left")
    return scores_of(dataset.manifest), found


FIGURES = {
    "best": "best_right",
    "AP": "average_precision",
    "removed": "removed",
    "right pairs": "right",
    "ambient": "ambient",
    "ECE": "calibration_error",
}
"""Keys of :func:`tools.measure.judged_pairs.measure` by the heads of the table."""


def page(report: Row) -> Page:
    """Mean over the seeds and, in brackets, half the range; one table a level."""
    blocks: list[str | Table] = [
        f"{report['num_scenes']} scenes a seed. *best*: the best pair of an image is a true object "
        "pair. *AP*: average precision over all pairs. *removed*: wrong pairs that fall away while "
        "95 % of the right ones stay. *ECE*: expected calibration error. Calibrations are fitted "
        "on other seeds.",
    ]
    for level in LEVELS:
        of_level = [each for each in report["measured"] if each["level"] == level]
        rows = []
        for name, on in dict.fromkeys((each["rule"], each["fitted_on"]) for each in of_level):
            own = [e["figures"] for e in of_level if (e["rule"], e["fitted_on"]) == (name, on)]
            cells = [with_half_range([f[key] for f in own]) for key in FIGURES.values()]
            rows.append([name, on, *cells])
        blocks.append(f"**{level}**")
        blocks.append(Table(heads=["rule", "fitted on", *FIGURES], rows=rows, words=2))
    return [*blocks, *page_of_captions(report["captions"])]


if __name__ == "__main__":
    ended(main)
