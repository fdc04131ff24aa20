"""Scenes of several seeds and levels, built once, paired by every rule, compared."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glit.bench.pairs.measure import Figures, calibrated, measure
from glit.bench.pairs.truth import Judged, judged
from glit.errors import InputError
from glit.recipe import load_recipe
from glit.rules.calibration import Calibration
from glit.scenes.layout import SPLITS
from glit.scenes.vocabulary import LEVELS
from glit.scenes.write import write_scenes
from glit.stages.pair import PairConfig

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

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    output: Path
    num_scenes: int = 300
    """Scenes of each seed."""
    num_seeds: int = 3
    """Seeds of the test split, for each level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A rule on the scenes of one level and seed."""

    rule: str
    level: str
    seed: int
    fitted_on: str
    """Levels whose validation scenes the calibration was fitted on; empty without one."""
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was measured, and the calibration of the recommended rule."""

    measured: tuple[Measured, ...]
    calibration: Calibration
    num_scenes: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(request: Request, say: Say) -> Report:
    """Build, fit, measure, and write ``pairs.json``, ``pairs.md`` and ``calibration.json``.

    Calibrations are fitted on scenes of the validation split and measured on those of the test
    split; none sees a seed it is measured on.
    """
    fitting = {
        level: _scenes(request, level, SPLITS["validation"][0] + 40 + number, say)
        for number, level in enumerate(LEVELS)
    }
    matcher = next(iter(fitting.values()))[0]
    samples = {level: found for level, (_, found) in fitting.items()}
    configs = {name: _config(words) for name, words in RULES_COMPARED.items()}
    configs["recommended"] = best = _config(())
    fitted = {
        name: _fitted(config, samples.values(), matcher, "scenes of all levels")
        for name, config in configs.items()
    }
    elsewhere = {
        level: _fitted(best, [v for k, v in samples.items() if k != level], matcher, "elsewhere")
        for level in LEVELS
    }
    measured: list[Measured] = []
    for number, level in enumerate(LEVELS):
        for repeat in range(request.num_seeds):
            seed = SPLITS["test"][0] + 40 + 10 * repeat + number
            _, found = _scenes(request, level, seed, say)
            for name, rule, calibration, on in _variants(configs, fitted, elsewhere[level], level):
                measured.append(
                    Measured(
                        rule=name, level=level, seed=seed, fitted_on=on,
                        figures=measure(found, rule, calibration),
                    )
                )  # fmt: skip
    report = Report(
        measured=tuple(measured),
        calibration=fitted["recommended"],
        num_scenes=request.num_scenes,
    )
    (request.output / "pairs.json").write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    (request.output / "pairs.md").write_text(table(report))
    kept = json.dumps(report.calibration.as_dict(), indent=2, sort_keys=True)
    (request.output / "calibration.json").write_text(kept + "\n")
    return report


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
    others = ", ".join(each for each in LEVELS if each != level)
    found.append(("recommended", best.make_rule(), elsewhere, others))
    for key in HALVED_AND_DOUBLED:
        value = best.rule_table()[key]
        for word, factor in (("halved", 0.5), ("doubled", 2.0)):
            changed = min(value * factor, 1.0) if key == "phrase_weight" else value * factor
            rule = _config((f"{key}={changed}",)).make_rule()
            found.append((f"{key} {word}", rule, None, ""))
    return found


def _config(words: Sequence[str]) -> PairConfig:
    bare = ["pair.calibration=", "pair.min_probability=0"]
    named = any(word.startswith("rule=") for word in words)
    base = "mini" if named else RECIPE
    changes = [*bare, *(f"pair.{word}" for word in words)]
    return load_recipe(base, overrides=changes).of(PairConfig)


def _fitted(config: PairConfig, samples: Any, matcher: dict[str, str], where: str) -> Calibration:
    together = [sample for found in samples for sample in found]
    made = calibrated(together, config.make_rule(), table=config.rule_table(), matcher=matcher)
    return Calibration(**{**_fields(made), "fitted_on": {**made.fitted_on, "where": where}})


def _fields(calibration: Calibration) -> dict[str, Any]:
    return {name: getattr(calibration, name) for name in calibration.__dataclass_fields__}


def _scenes(
    request: Request, level: str, seed: int, say: Say
) -> tuple[dict[str, str], list[Judged]]:
    """The matcher's identity, and the judged samples of scenes that are built if they are not."""
    import glit

    folder = request.output / "scenes" / f"{level}-{seed}-{request.num_scenes}"
    if not (folder / "ground_truth.parquet").exists():
        write_scenes(folder, num=request.num_scenes, seed=seed, level=level)
    say(f"{level} scenes, seed {seed}")
    dataset = glit.build(
        folder / "images", folder / "dataset", recipe="mini", executor="local", quiet=True,
        captions=folder / "captions.jsonl", settings=["score.phrases=true"],
    )  # fmt: skip
    found = list(judged(dataset, folder / "ground_truth.parquet"))
    if not found:
        raise InputError(f"{folder}: no sample was left")
    return dataset.manifest["models"]["matcher"], found


def table(report: Report) -> str:
    """Markdown: mean over the seeds and, in brackets, half the spread; one table a level."""
    lines = [
        f"{report.num_scenes} scenes a seed. *best*: the best pair of an image is a true object "
        "pair. *AP*: average precision over all pairs. *removed*: wrong pairs that fall away while "
        "95 % of the right ones stay. *ECE*: expected calibration error. Calibrations are fitted "
        "on other seeds.",
    ]
    for level in LEVELS:
        of_level = [each for each in report.measured if each.level == level]
        lines += [
            "",
            f"**{level}**",
            "",
            "| rule | fitted on | best | AP | removed | right pairs | ambient | ECE |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, on in dict.fromkeys((each.rule, each.fitted_on) for each in of_level):
            own = [e.figures for e in of_level if (e.rule, e.fitted_on) == (name, on)]
            cells = [
                _spread([getattr(figures, key) for figures in own])
                for key in (
                    "best_right", "average_precision", "removed", "right", "ambient",
                    "calibration_error",
                )
            ]  # fmt: skip
            lines.append(f"| {name} | {on} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    half = (max(numbers) - min(numbers)) / 2
    return f"{statistics.fmean(numbers):.3f} ({half:.3f})"
