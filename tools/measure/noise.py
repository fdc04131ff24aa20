"""Train on scenes with planted wrong pairs: ``python -m tools.measure.noise -o OUT``.

The clean dataset has the right pairs of the mini matcher alone. Of these a share is made wrong:

- ``region``: the sentence gets another region of its image (IoU with its own below 0.05);
- ``near``: a region that overlaps its own by an IoU of 0.1 to 0.4;
- ``sentence``: in the caption, the sentence gives way to one about an object of another image; its
  box stays.

The same pairs are made wrong in all kinds, and a larger share holds the smaller ones. With a
remedy, pairs have the probabilities that the mini matcher's calibration gives them: ``weighted``
weights losses by them, ``dropped`` leaves out those below one half. Takes hours; resumable.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.bench.objectives.run import ComparisonRequest, compare_one
from glit.bench.objectives.table import ObjectiveRow as TableRow
from glit.bench.objectives.table import difference
from glit.bench.objectives.variants import Variant
from glit.bench.scenes import build_scenes
from glit.curate.rewrite import finish
from glit.data.geometry import iou
from glit.data.records import Pair
from glit.data.rows import pair_row
from glit.data.schema import PAIR
from glit.dataset.manifest import describe_data_file
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.scorers.protocol import Vectors
from glit.recipes.config import build_dataclass
from glit.rules.calibration import Calibration, find_calibration
from glit.rules.evidence import pair_evidence
from glit.runtime.tables import Table, markdown, percent
from glit.stages.pair import PairConfig
from glit.storage.folder_lock import folder_lock
from tools.measure.console import ended, say
from tools.measure.judged_pairs import judged
from tools.measure.scene_world import SceneCollection, Scenes

Kind = Literal["region", "near", "sentence"]
Remedy = Literal["", "weighted", "dropped"]
NEAR_IOU, OTHER_IOU = (0.1, 0.4), 0.05
REMEDIES: dict[Remedy, str] = {
    "": "",
    "weighted": " pairs=weighted",
    "dropped": " min_probability=0.5",
}
Pairs = list[tuple[int, int]]
"""Sentence and region of the pairs of a sample, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyScenes(Scenes):
    """Hard scenes some of whose pairs are wrong, to train on; the gallery is as it was."""

    kind: Kind = "region"
    share: float = 0.0
    """Of the pairs with a region that are wrong, 0 to 1."""
    audited: bool = False
    """Pairs have probabilities, and are ranked by them."""

    further_columns: ClassVar[Mapping[str, str]] = {}

    def training_set(self, folder: Path, size: int, *, negatives: bool) -> Path:
        """The dataset with its planted pairs, built if it is not there."""
        del negatives  # all objectives learn from the same dataset
        clean = Scenes.training_set(self, folder, size, negatives=True)
        name = f"{self.kind}-{self.share:g}" if self.share else "clean"
        output = folder / f"train-{size}-{name}{'-audited' if self.audited else ''}"
        if not (output / "manifest.json").is_file():
            shutil.rmtree(output, ignore_errors=True)
            self._plant(Dataset(clean), folder / f"scenes-{size}", output)
        return output

    def _plant(self, clean: Dataset, scenes: Path, output: Path) -> None:
        samples = list(_right_pairs(clean, scenes / "ground_truth.parquet"))
        planted = _planted(samples, self.share)
        source = clean
        if self.kind == "sentence" and planted:
            captions = output.parent / f"{output.name}.jsonl"
            _write_captions(scenes / "ground_truth.parquet", samples, planted, captions)
            settings = ["negatives.enabled=true", f"split.tokenizer={json.dumps(self.start)}"]
            source = build_scenes(
                scenes, output.parent / f"{output.name}-built", captions=captions,
                recipe="glit-mini", settings=settings,
            )  # fmt: skip
        calibration = find_calibration("mini-scenes")
        assert calibration is not None
        pairing = source.manifest.recipe.tables["pair"]
        rows = []
        for row, sample in zip(source.rows(images=False), samples, strict=True):
            assert row.sample_id == sample.row.sample_id, "builds order samples alike"
            assert len(row.sentences) == len(sample.row.sentences), "sentences are cut alike"
            wrong = {s for name, s in planted if name == row.sample_id}
            pairs = [(s, sample.other[self.kind][s] if s in wrong else r) for s, r in sample.pairs]
            rows.append(_as_pairs(row, pairs, calibration if self.audited else None, pairing))
        _write(source, output, rows)

    def further(
        self, embedder: CollectionEmbedder, config: EvaluateConfig, images: Vectors
    ) -> dict[str, float]:
        """Nothing: retrieval and places are measured."""
        return {}

    def validated(self) -> SceneCollection | None:
        """None: no rates are chosen."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    row: Row
    pairs: Pairs
    """The right ones."""
    other: dict[Kind, dict[int, int]]
    """By kind and sentence, the region of a wrong pair."""


def _right_pairs(dataset: Dataset, ground_truth: Path) -> Iterator[_Sample]:
    for row, truth in zip(dataset.rows(images=False), judged(dataset, ground_truth), strict=True):
        boxes = np.array([region.box.xyxy for region in row.regions])
        overlap = iou(boxes, boxes)
        pairs: Pairs = []
        other: dict[Kind, dict[int, int]] = {kind: {} for kind in get_args(Kind)}
        for pair in row.pairs:
            if pair.global_wins or not truth.right[pair.sentence, pair.region]:
                continue
            pairs.append((pair.sentence, pair.region))
            own = overlap[pair.region]
            wrong = ~truth.right[pair.sentence]
            near = np.flatnonzero(wrong & (own >= NEAR_IOU[0]) & (own <= NEAR_IOU[1]))
            far = np.flatnonzero(wrong & (own < OTHER_IOU))
            if len(near) and len(far):
                at = _number(row.sample_id, pair.sentence)
                other["near"][pair.sentence] = int(near[at % len(near)])
                other["region"][pair.sentence] = int(far[at % len(far)])
                other["sentence"][pair.sentence] = pair.region
        yield _Sample(row=row, pairs=pairs, other=other)


def _number(*of: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:6], "big")


def _planted(samples: Sequence[_Sample], share: float) -> set[tuple[str, int]]:
    """Sample and sentence of the pairs that are made wrong."""
    can = [(sample.row.sample_id, s) for sample in samples for s in sample.other["near"]]
    wanted = round(share * sum(len(sample.pairs) for sample in samples))
    assert wanted <= len(can), f"{wanted} wrong pairs wanted, {len(can)} can be"
    return set(sorted(can, key=lambda each: _number("planted", *each))[:wanted])


def _write_captions(
    ground_truth: Path, samples: Sequence[_Sample], planted: set[tuple[str, int]], output: Path
) -> None:
    """Captions in which planted sentences tell of an object of another scene."""
    truth = {
        row["path"]: row
        for row in pq.read_table(ground_truth, columns=["path", "caption", "sentences"]).to_pylist()
    }
    names = sorted(truth)
    with output.open("w", encoding="utf-8") as file:
        for sample in samples:
            path = sample.row.source_path
            caption, own = truth[path]["caption"], truth[path]["sentences"]
            for each in reversed(own):
                start, end = each["char_start"], each["char_end"]
                number = next(
                    (n for n, s in enumerate(sample.row.sentences) if s.char_start == start), -1
                )
                if (sample.row.sample_id, number) not in planted:
                    continue
                at = _number("another", path, number)
                there = truth[names[(names.index(path) + 1 + at % (len(names) - 1)) % len(names)]]
                told = [one for one in there["sentences"] if one["kind"] == "object"]
                one = told[at % len(told)]
                text = there["caption"][one["char_start"] : one["char_end"]]
                caption = caption[:start] + text + caption[end:]
            file.write(json.dumps({"path": path, "caption": caption}) + "\n")


def _as_pairs(row: Row, pairs: Pairs, calibration: Calibration | None, pairing: Any) -> list[Pair]:
    """A pair a sentence, those with a region first; ranked by probability if there is one."""
    chosen = row.similarity.argmax(axis=1)
    for sentence, region in pairs:
        chosen[sentence] = region
    probability = None
    if calibration is not None:
        rule = build_dataclass(PairConfig, pairing, where="[pair]").make_pairing(calibration).rule
        evidence = pair_evidence(
            rule(row.scores, row.regions).value, row.scores, row.regions, chosen=chosen
        )
        probability = calibration.pair(evidence)
        pairs = sorted(pairs, key=lambda pair: -probability[pair[0]])
    held = [sentence for sentence, _ in pairs]
    rest = [number for number in range(len(row.sentences)) if number not in held]
    return [
        Pair(
            sentence=number,
            region=int(chosen[number]),
            similarity=float(row.similarity[number, chosen[number]]),
            global_wins=number not in held,
            probability=None if probability is None else float(probability[number]),
        )
        for number in [*held, *rest]
    ]


def _write(source: Dataset, output: Path, rows: Sequence[Sequence[Pair]]) -> None:
    """Write a dataset with these pairs."""
    shutil.copytree(source.path, output, ignore=shutil.ignore_patterns("manifest.json", "data"))
    (output / "data").mkdir()
    at, files = 0, dict(source.manifest.files)
    for name in source.files:
        table = pq.read_table(Path(source.path) / name)
        own = [[pair_row(pair) for pair in pairs] for pairs in rows[at : at + len(table)]]
        column = table.schema.get_field_index("pairs")
        field = table.schema.field(column)
        table = table.set_column(column, field, pa.array(own, type=pa.list_(PAIR)))
        pq.write_table(table, output / name)
        files[name] = describe_data_file(output / name, len(table))
        at += len(table)
    manifest = dataclasses.replace(source.manifest, files=files)
    finish(output, manifest, name=output.name, caution="")


def run(
    output: Path, settings: Sequence[tuple[Kind, float, Remedy]], objectives: Sequence[str],
    *, size: int, seeds: int, lr: float,
) -> str:  # fmt: skip
    """Train and measure; the table as Markdown."""
    clean: dict[str, TableRow] = {}
    lines = []
    for kind, share, remedy in [("region", 0.0, ""), *settings]:
        world = NoisyScenes(
            level="hard", gallery=1000, start="mini-matcher", kind=kind, share=share,
            audited=bool(remedy),
        )  # fmt: skip
        dataset = world.training_set(output / "data", size, negatives=True)
        for name in objectives:
            request = ComparisonRequest(
                output=output / dataset.name.removeprefix(f"train-{size}-"), world=world,
                sizes=(size,), lrs=(lr,), num_seeds=seeds,
            )  # fmt: skip
            rows, notes = compare_one(request, Variant(name + REMEDIES[remedy]), size, dataset, say)
            for note in notes:
                say(note)
            for row in rows:
                score = row.name.partition(", ")[2]
                what = f"{name}, {score}" if score else name
                first = clean.setdefault(what, row)
                found = difference(row, first)
                apart = f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
                lines.append([
                    what, f"{kind if share else 'none'}{remedy and ', '}{remedy}",
                    f"{100 * share:g}", str(len(row.figures)),
                    *(percent([f[key] for f in row.figures]) for key in ("t2i", "i2t")),
                    "" if row is first else apart,
                    percent([f["localisation"] for f in row.figures]),
                ])  # fmt: skip
    heads = ["objective", "wrong", "%", "seeds", "T2I", "I2T", "against none", "localisation@5"]
    return markdown([Table(heads=heads, rows=sorted(lines, key=lambda line: line[0]), words=2)])


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.noise", description=__doc__)
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, help="the folder for runs and datasets")
    add("--objective", action="append", help="repeatable; default glit, fast-goal, fg-clip, siglip")
    add("--kind", action="append", choices=get_args(Kind), help="repeatable; default all")
    add("--share", type=float, action="append", help="of wrong pairs; repeatable")
    add("--remedy", choices=get_args(Remedy), default="")
    add("--size", type=int, default=1200, help="training scenes")
    add("--seeds", type=int, default=1)
    add("--lr", type=float, default=1e-3)
    given = parser.parse_args()
    shares = given.share or (0.02, 0.05, 0.1, 0.2, 0.4)
    settings = [(k, s, given.remedy) for s in shares for k in given.kind or get_args(Kind)]
    objectives = given.objective or ("glit", "fast-goal", "fg-clip", "siglip")
    with folder_lock(given.output):
        print(run(given.output, settings, objectives, size=given.size, seeds=given.seeds,
                  lr=given.lr))  # fmt: skip


if __name__ == "__main__":
    ended(main)
