"""``glit pairs apply``: a finished dataset with a person's corrections.

Rows without a correction are copied unchanged. Files and row groups stay the same, except that
samples with no sentence or no region left are dropped.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.curate.dataset_models import DatasetModels
from glit.curate.derive import change_rows, finish
from glit.curate.select_rows import source_of
from glit.data.records import Drop
from glit.data.schema import CORRECTED
from glit.dataset.by_hand import UNREVIEWED
from glit.dataset.certificate import certificate, find, items_of, not_proved
from glit.dataset.columns import RowGroup
from glit.dataset.manifest import require_regions
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import pairings_of
from glit.errors import InputError
from glit.images import Pixels
from glit.review.corrections.journal import KINDS, Line, State, read_corrections
from glit.review.corrections.precision import Judged, Precision, judged_pairs, precision
from glit.review.corrections.row import corrected_row
from glit.runtime.progress import StageProgress
from glit.storage.outputs import new_folder
from glit.verdicts.judged import read_judged
from glit.verdicts.record import read_audit

_REDONE = ("caption", "split", "propose", "ground", "score", "pair", "negatives", "pack")
"""Steps whose results corrections change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Counts of the samples and items that ``apply_corrections`` changed."""

    samples: int
    """Number of samples that were corrected or reviewed."""
    dropped: int
    """Number of these that had no sentence or no region left, and were dropped."""
    counts: dict[str, int]
    """By a key of :data:`glit.review.corrections.journal.KINDS`."""
    warnings: tuple[str, ...]
    precision: Precision


def apply_corrections(
    dataset: Dataset,
    output: Path,
    corrections: Sequence[Path],
    progress: StageProgress,
    *,
    matcher: str = "",
    judged: Path | None = None,
    verdicts: Sequence[Path] = (),
) -> Applied:
    """The work of :func:`glit.api.apply_corrections`.

    Raises:
        InputError: it is not proved that the repairs are right; a line is not a correction or does
            not fit this dataset, or no sample would be left.
        DatasetError: a file of the dataset is damaged.
    """
    require_regions(dataset.manifest, dataset.path, wanted_by="glit pairs apply wants")
    with new_folder(output) as folder:
        source = source_of(dataset)
        repairs, by_model = _repairs(dataset, judged, verdicts)
        lines, told, warnings = _read(dataset, corrections, source.manifest_sha256)
        lines, told = repairs | lines, by_model + told
        corrected = _Corrections(dataset, lines, DatasetModels(dataset, matcher=matcher))
        progress.begin("correct", total=len(dataset), done=0, drops=False)
        manifest = change_rows(
            dataset, folder, corrected, stage="correct", added=CORRECTED, values=UNREVIEWED,
            report=progress.advance,
        )  # fmt: skip
        missing = corrected.models.missing
        entry = {"files": told, "samples": len(lines), **corrected.counts, "scored": not missing}
        manifest = dataclasses.replace(
            manifest,
            corrections=(*manifest.corrections, dataclasses.replace(source, more=entry)),
            fingerprints=_new_fingerprints(manifest.fingerprints, told),
        )
        finish(folder, manifest, name=output.name, sources=[dataset])
    if missing:
        warnings.append(
            f"scores of changed boxes and sentences are not known ({missing}); "
            "they are 0, and 'scored' is false in by_hand"
        )
    return Applied(
        samples=len(lines), dropped=len(dataset) - manifest.counts.shipped, counts=corrected.counts,
        warnings=tuple(warnings), precision=precision(corrected.judged),
    )  # fmt: skip


def _read(
    dataset: Dataset, corrections: Sequence[Path], sha256: str
) -> tuple[dict[str, Line], list[dict[str, Any]], list[str]]:
    """The last line of every sample, what the manifest keeps of the files, and warnings."""
    known = {each.as_py() for each in dataset.table(["sample_id"])["sample_id"]}
    lines: dict[str, Line] = {}
    told, warnings = [], []
    for file in corrections:
        found, cut, digest = read_corrections(file, sha256)
        if cut:
            warnings.append(f"{file}: its last line is unfinished and is left out")
        for line in found:
            if line.sample_id not in known:
                raise InputError(f"{line.where}: no sample {line.sample_id} in {dataset.path}")
        last = {line.sample_id: line for line in found}
        own = {name: line for name, line in last.items() if line.state is not None}
        if both := len(own.keys() & lines.keys()):
            warnings.append(f"{file}: {both} samples are in an earlier file too; these here count")
        lines |= own
        people = sorted({line.by for line in found})
        told.append({"sha256": digest, "lines": len(found), "by": people})
    return lines, told, warnings


def _repairs(
    dataset: Dataset, judged: Path | None, verdicts: Sequence[Path]
) -> tuple[dict[str, Line], list[dict[str, Any]]]:
    """The proved repairs of a model as corrections by sample, and what the manifest keeps of them.

    Raises:
        InputError: the verdicts prove no claim on these repairs.
    """
    if judged is None:
        return {}, []
    if not verdicts:
        raise InputError(
            f"{judged}: want --verdicts with people's verdicts on these repairs; glit pairs "
            "certify --of repairs plans them"
        )
    said, record = read_judged(judged), read_audit(verdicts)
    if record.plan.claim.of != "repairs":
        raise InputError(f"{verdicts[0]}: its claim is of {record.plan.claim.of}, not of repairs")
    items = items_of(dataset, record.plan.claim, judged=said)
    finding = find(items, record)
    if finding.proved is None:
        raise InputError(f"{judged}: {not_proved(items, record, finding)}")
    model = f"model:{said.judging.model}"
    pairs: dict[str, dict[int, int | None]] = defaultdict(dict)
    for (sample_id, (sentence, _)), region in said.repairs.items():
        if items.find((sample_id, (sentence, region))) is not None:
            pairs[sample_id][sentence] = region
    lines = {
        sample_id: Line(
            dataset="", by=model, at="", sample_id=sample_id, did="pair",
            state=State(pairs=own), where=str(judged),
        )
        for sample_id, own in pairs.items()
    }  # fmt: skip
    certified = certificate(items, record, finding)
    told = {
        "sha256": said.sha256, "lines": len(items), "by": [model], "certified": certified.claim
    }  # fmt: skip
    return lines, [told]


class _Corrections:
    """Applies corrections to row groups, and counts what it changes."""

    def __init__(self, dataset: Dataset, lines: dict[str, Line], models: DatasetModels) -> None:
        self._lines, self.models = lines, models
        self._pairings = pairings_of(dataset.manifest)
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.judged: list[Judged] = []

    def __call__(self, group: RowGroup) -> tuple[pa.Table, dict[int, Drop]]:
        """The rows between corrected ones as they stand, and these."""
        table, parts, start = group.table, [], 0
        drops: dict[int, Drop] = {}
        for number, sample_id in enumerate(table["sample_id"].to_pylist()):
            if (line := self._lines.get(sample_id)) is None:
                continue
            parts.append(table.slice(start, number - start))
            start = number + 1
            row = table.slice(number, 1).to_pylist()[0]
            try:
                made = self._corrected(row, line.state or State(), partial(group.pixels, number))
            except InputError as error:
                raise InputError(f"{line.where}: {row['source_path']}: {error}") from error
            if isinstance(made, Drop):
                drops[number] = made
            else:
                parts.append(pa.Table.from_pylist([made], schema=table.schema))
        return pa.concat_tables([*parts, table.slice(start)]).combine_chunks(), drops

    def _corrected(
        self, row: dict[str, Any], state: State, pixels: Callable[[], Pixels]
    ) -> dict[str, Any] | Drop:
        sentences, regions = len(row["sentences"]), len(row["regions"])
        state.check(
            sentences=sentences, regions=regions, width=row["width"], height=row["height"]
        )  # fmt: skip
        for kind, number in state.counts(regions=regions).items():
            self.counts[kind] += number
        self.judged += judged_pairs(row, state)
        if not state.changes:
            return {**row, "review": state.review(edited=row["review"]["edited"])}
        return corrected_row(row, state, self.models, self._pairings, pixels)


def _new_fingerprints(
    fingerprints: Mapping[str, str], told: list[dict[str, Any]]
) -> dict[str, str]:
    """Return the fingerprints; those of steps whose results changed depend on the corrections
    too."""
    files = " ".join(each["sha256"] for each in told)
    return {
        step: hashlib.sha256(f"{value} {files}".encode()).hexdigest()[:12]
        if step in _REDONE
        else value
        for step, value in fingerprints.items()
    }
