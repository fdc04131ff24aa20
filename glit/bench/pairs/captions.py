"""Captions of several seeds and levels, checked: fitted on validation seeds, measured on test's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glit.bench.pairs.scenes import scenes_folder, spread
from glit.bench.pairs.support import (
    WITH_LOGPROBS,
    SupportFigures,
    false_sentences,
    figures,
    fit_support,
    own_mistakes,
    support_error,
)
from glit.rules.evidence import LOGPROBS, SUPPORT_EVIDENCE
from glit.rules.logistic import Logistic
from glit.scenes.layout import SPLITS
from glit.scenes.vocabulary import LEVELS

OWN = "hard, 64 px, mini captioner"
OWN_SEED = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCaptions:
    """A support on the sentences of one level and seed."""

    level: str
    seed: int
    evidence: str
    """What the support looks at."""
    calibration_error: float
    figures: tuple[SupportFigures, ...]


def check_captions(
    output: Path, num_scenes: int, num_seeds: int, say: Callable[[str], None]
) -> tuple[tuple[CheckedCaptions, ...], Logistic]:
    """All figures, and the support that goes into the shipped calibration.

    Args:
        output: folder for scenes and datasets.
        num_scenes: of each seed.
        num_seeds: of the test split, for each level.
        say: called with what is being done.
    """
    first, test = SPLITS["validation"][0] + 60, SPLITS["test"][0] + 60
    fitting = []
    for number, level in enumerate(LEVELS):
        say(f"{level} scenes with false sentences, seed {first + number}")
        folder = scenes_folder(output, level, first + number, num_scenes)
        fitting += false_sentences(folder, seed=first + number)
    support = fit_support(fitting)
    checked = []
    for number, level in enumerate(LEVELS):
        for seed in (test + number + 10 * repeat for repeat in range(num_seeds)):
            say(f"{level} scenes with false sentences, seed {seed}")
            told = false_sentences(scenes_folder(output, level, seed, num_scenes), seed=seed)
            checked.append(
                CheckedCaptions(
                    level=level,
                    seed=seed,
                    evidence=", ".join(support.evidence),
                    calibration_error=support_error(told, support),
                    figures=tuple(figures(told, support)),
                )
            )
    checked += _own_mistakes(output, num_scenes, num_seeds, say)
    return tuple(checked), support


def _own_mistakes(
    output: Path, num: int, num_seeds: int, say: Callable[[str], None]
) -> list[CheckedCaptions]:
    """What the mini captioner says wrongly, by region evidence, by its own doubt, by both."""

    def told_of(seed: int):
        say(f"{OWN}, seed {seed}")
        return own_mistakes(output / "own" / f"{seed}-{num}", num=num, seed=seed, level="hard")

    told = told_of(SPLITS["validation"][0] + OWN_SEED)
    if len({bool(each.false) for each in told}) < 2:
        return []  # too few scenes for a mistake
    fitted = [fit_support(told, names) for names in (SUPPORT_EVIDENCE, LOGPROBS, WITH_LOGPROBS)]
    checked = []
    for repeat in range(num_seeds):
        seed = SPLITS["test"][0] + OWN_SEED + 10 * repeat
        told = told_of(seed)
        checked += [
            CheckedCaptions(
                level=OWN,
                seed=seed,
                evidence=", ".join(support.evidence),
                calibration_error=support_error(told, support),
                figures=tuple(figures(told, support)),
            )
            for support in fitted
        ]
    return checked


def table_of_captions(checked: Sequence[CheckedCaptions]) -> str:
    """Markdown: AUROC of support, false sentences against true ones; mean and half the spread."""
    lines = [
        "AUROC of a sentence's support, false sentences against true ones of the same kind, and "
        "against all true ones, remarks included.",
        "",
        "| level | support looks at | false | same kind | all | ECE |",
        "|---|---|---|---|---|---|",
    ]
    for level, evidence in dict.fromkeys((each.level, each.evidence) for each in checked):
        own = [each for each in checked if (each.level, each.evidence) == (level, evidence)]
        error = spread([each.calibration_error for each in own])
        for kind in dict.fromkeys(f.kind for each in own for f in each.figures):
            found = [f for each in own for f in each.figures if f.kind == kind]
            cells = [spread([getattr(f, key) for f in found]) for key in ("auroc", "auroc_all")]
            lines.append(f"| {level} | {evidence} | {kind} | {' | '.join(cells)} | {error} |")
    return "\n".join(lines) + "\n"
