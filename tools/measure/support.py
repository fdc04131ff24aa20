"""How well ``support`` tells false sentences from true ones, on captions made false on purpose.

Sentences are scored as in any build. What can be seen in the evidence is fitted (attribute, object,
background); places and relations are measured besides, since no cosine of a crop knows them.
Support is fitted on validation seeds and measured on those of the test split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from glit.bench.harness import Row
from glit.bench.scenes import build_scenes
from glit.dataset.row import Row as DatasetRow
from glit.rules.evidence import SUPPORT_EVIDENCE, Evidence, stacked, support_evidence
from glit.rules.logistic import Logistic, fit
from glit.rules.metrics import calibration_error
from glit.runtime.tables import Page, Table, with_half_range
from glit.scenes.false_sentences import KINDS
from glit.scenes.layout import SPLITS
from tools.measure.false_captions import write_false_captions
from tools.measure.level_scenes import LEVELS, scenes_folder

SEEN = ("attribute", "object", "background")
"""Kinds of falsehood that the evidence can tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Told:
    """A sentence and what is known of it."""

    of: str
    """object, relation, background, light or remark."""
    false: str
    """The kind of falsehood; empty for a true sentence."""
    evidence: Evidence
    """A value of each name."""


def false_sentences(folder: Path, *, seed: int) -> list[Told]:
    """Sentences of scenes whose captions hold one false sentence each.

    Args:
        folder: of scenes; the dataset is built into it if it is not there.
        seed: decides which sentences are made false.
    """
    truth = folder / "ground_truth.parquet"
    false = write_false_captions(truth, folder / "false", seed=seed)
    captions = folder / "false" / "captions.jsonl"
    dataset = build_scenes(folder, folder / "false-dataset", captions=captions)
    kinds = {
        row["path"]: [each["kind"] for each in row["sentences"]]
        for row in pq.read_table(truth, columns=["path", "sentences"]).to_pylist()
    }
    found: list[Told] = []
    for row in dataset.rows(images=False):
        own, changed = kinds[row.source_path], false.get(row.source_path)
        if len(row.sentences) != len(own):
            continue  # the splitter and the truth do not cut alike: nothing is known of these
        for number, evidence in enumerate(_each(row)):
            is_false = changed is not None and changed["index"] == number
            kind = changed["kind"] if changed is not None and is_false else ""
            found.append(Told(of=own[number], false=kind, evidence=evidence))
    return found


def _each(row: DatasetRow) -> Iterator[Evidence]:
    evidence = support_evidence(row.scores, row.sentences)
    for number in range(len(row.sentences)):
        yield {name: values[number : number + 1] for name, values in evidence.items()}


def fit_support(told: Sequence[Told]) -> Logistic:
    """Support fitted on sentences; falsehoods that the evidence cannot tell are left out.

    Raises:
        RecipeError: all are true, or all false.
    """
    used = [each for each in told if each.false in ("", *SEEN)]
    true = np.array([not each.false for each in used])
    evidence = stacked([each.evidence for each in used], SUPPORT_EVIDENCE)
    return fit(SUPPORT_EVIDENCE, evidence, true, of="sentences")


def auroc(true: np.ndarray, false: np.ndarray) -> float:
    """Share of pairs of a true and a false sentence in which the true one scores higher; ties half.

    NaN where there is none of one kind.
    """
    if not len(true) or not len(false):
        return float("nan")
    ordered = np.sort(true)
    below = np.searchsorted(ordered, false, side="right")
    strictly = np.searchsorted(ordered, false, side="left")
    return float(1 - (below + strictly).mean() / (2 * len(true)))


def figures(told: Sequence[Told], support: Logistic) -> list[Row]:
    """How well support tells false sentences from true ones, a row for each kind of falsehood.

    ``auroc`` is against true sentences of the same kind of sentence, ``auroc_all`` against all true
    sentences, remarks that no region can support included.
    """
    values = _supported(told, support)
    false = np.array([each.false for each in told])
    of = np.array([each.of for each in told])
    found = []
    for kind in dict.fromkeys(each.false for each in told if each.false):
        true, own = false == "", values[false == kind]
        alike = true & (of == KINDS[kind][0])
        same, every = auroc(values[alike], own), auroc(values[true], own)
        found.append({"kind": kind, "num_false": len(own), "auroc": same, "auroc_all": every})
    return found


def support_error(told: Sequence[Told], support: Logistic) -> float:
    """Expected calibration error over the sentences whose truth the evidence can tell."""
    used = [each for each in told if each.false in ("", *SEEN)]
    return calibration_error(_supported(used, support), np.array([not e.false for e in used]))


def _supported(told: Sequence[Told], support: Logistic) -> np.ndarray:
    numbers = stacked([each.evidence for each in told], support.evidence)
    return support(dict(zip(support.evidence, numbers.T, strict=True)))


def check_captions(
    output: Path, num_scenes: int, num_seeds: int, say: Callable[[str], None]
) -> tuple[list[Row], Logistic]:
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
            error, found = support_error(told, support), figures(told, support)
            checked.append(
                {"level": level, "seed": seed, "calibration_error": error, "figures": found}
            )
    return checked, support


def page_of_captions(checked: Sequence[Row]) -> Page:
    """AUROC of support, false sentences against true ones; mean and half the range."""
    rows = []
    for level in dict.fromkeys(each["level"] for each in checked):
        own = [each for each in checked if each["level"] == level]
        error = with_half_range([each["calibration_error"] for each in own])
        for kind in dict.fromkeys(f["kind"] for each in own for f in each["figures"]):
            found = [f for each in own for f in each["figures"] if f["kind"] == kind]
            cells = [with_half_range([f[key] for f in found]) for key in ("auroc", "auroc_all")]
            rows.append([level, kind, *cells, error])
    about = (
        "AUROC of a sentence's support, false sentences against true ones of the same kind, and "
        "against all true ones, remarks included."
    )
    return [about, Table(heads=["level", "false", "same kind", "all", "ECE"], rows=rows, words=2)]
