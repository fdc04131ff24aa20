"""How well ``support`` tells false sentences from true ones, on captions made false on purpose.

Sentences are scored as in any build. What can be seen in the evidence is fitted (attribute, object,
background); places and relations are measured besides, since no cosine of a crop knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from glit.bench.pairs.measure import calibration_error, stacked
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.rules.evidence import LOGPROBS, SUPPORT_EVIDENCE, Evidence, support_evidence
from glit.rules.logistic import Logistic, fit
from glit.scenes.false_sentences import KINDS, write_false_captions
from glit.scenes.layout import draw_scene
from glit.scenes.told import objects_told, true_of
from glit.scenes.write import write_scenes

SEEN = ("attribute", "object", "background")
"""Kinds of falsehood that the evidence can tell."""
_SMALL_PX = 64
"""Side of scenes that the mini captioner was not trained on; it saw 128."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Told:
    """A sentence and what is known of it."""

    of: str
    """object, relation, background, light or remark."""
    false: str
    """The kind of falsehood; empty for a true sentence."""
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportFigures:
    """Of the sentences of one kind of falsehood on some scenes."""

    kind: str
    num_false: int
    auroc: float
    """Against true sentences of the same kind of sentence."""
    auroc_all: float
    """Against all true sentences, remarks that no region can support included."""


def false_sentences(folder: Path, *, seed: int) -> list[Told]:
    """Sentences of scenes whose captions hold one false sentence each.

    Args:
        folder: of scenes; the dataset is built into it if it is not there.
        seed: decides which sentences are made false.
    """
    import glit

    truth = folder / "ground_truth.parquet"
    false = write_false_captions(truth, folder / "false", seed=seed)
    dataset = glit.build(
        folder / "images", folder / "false-dataset", recipe="mini", executor="local", quiet=True,
        captions=folder / "false" / "captions.jsonl",
    )  # fmt: skip
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


def own_mistakes(folder: Path, *, num: int, seed: int, level: str) -> list[Told]:
    """Object sentences of the mini captioner on pictures half as large as those it learned from.

    A sentence is false when the scene has no object of that shape and colour at that place.
    """
    import glit

    if not (folder / "ground_truth.parquet").exists():
        write_scenes(folder, num=num, seed=seed, level=level, size=_SMALL_PX)
    dataset: Dataset = glit.build(
        folder / "images", folder / "dataset", recipe="mini", executor="local", quiet=True
    )
    found: list[Told] = []
    for row in dataset.rows(images=False):
        scene = draw_scene(seed, int(Path(row.source_path).stem), level=level)
        for sentence, evidence in zip(row.sentences, _each(row), strict=True):
            for told in objects_told(sentence.text):
                right = true_of(told, scene)
                found.append(Told(of="object", false="" if right else "own", evidence=evidence))
    return found


def _each(row: Row) -> Iterator[Mapping[str, float]]:
    evidence: Evidence = support_evidence(row.scores, row.sentences)
    for number in range(len(row.sentences)):
        yield {name: float(values[number]) for name, values in evidence.items()}


def fit_support(told: Sequence[Told], names: Sequence[str] = SUPPORT_EVIDENCE) -> Logistic:
    """Support fitted on sentences; falsehoods that the evidence cannot tell are left out.

    Raises:
        RecipeError: all are true, or all false.
    """
    used = [each for each in told if each.false in ("", "own", *SEEN)]
    return fit(
        names,
        _numbers(used, names),
        np.array([not each.false for each in used]),
        of="sentences",
    )


def figures(told: Sequence[Told], score: Callable[[Evidence], np.ndarray]) -> list[SupportFigures]:
    """How well a score tells false sentences from true ones, by kind of falsehood."""
    names = sorted(told[0].evidence)
    values = score(dict(zip(names, _numbers(told, names).T, strict=True)))
    false = np.array([each.false for each in told])
    of = np.array([each.of for each in told])
    found = []
    for kind in dict.fromkeys(each.false for each in told if each.false):
        base = KINDS[kind][0] if kind in KINDS else "object"
        true = false == ""
        found.append(
            SupportFigures(
                kind=kind,
                num_false=int((false == kind).sum()),
                auroc=auroc(values[true & (of == base)], values[false == kind]),
                auroc_all=auroc(values[true], values[false == kind]),
            )
        )
    return found


def support_error(told: Sequence[Told], support: Logistic) -> float:
    """Expected calibration error over the sentences whose truth the evidence can tell."""
    used = [each for each in told if each.false in ("", "own", *SEEN)]
    numbers = _numbers(used, support.evidence)
    said = support(dict(zip(support.evidence, numbers.T, strict=True)))
    return calibration_error(said, np.array([not each.false for each in used]))


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


def _numbers(told: Sequence[Told], names: Sequence[str]) -> np.ndarray:
    rows: list[dict[str, Any]] = [
        {name: np.array([each.evidence[name]]) for name in names} for each in told
    ]
    return stacked(rows, names)


WITH_LOGPROBS = (*SUPPORT_EVIDENCE, *LOGPROBS)
