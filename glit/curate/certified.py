"""``glit pairs certify``: plan an audit, tell what verdicts prove, write the certified dataset.

Of a claim on all items the data files are copied. Of a claim on the largest part of the pairs,
those outside the part lose their region, as with ``pair.min_probability``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.curate.derive import change_rows, finish
from glit.curate.pair_again import pair_config, write_with_pairs
from glit.dataset.certificate import (
    certificate,
    faults,
    find,
    items_of,
    make_plan,
    not_proved,
)
from glit.dataset.manifest import Certificate, Manifest, describe_file, require_regions
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, InputError
from glit.plain import MisfitError, from_plain
from glit.storage.outputs import new_folder
from glit.verdicts.judged import Judged, read_judged
from glit.verdicts.record import Agreement, AuditPlan, Claim, Record, begin, read_audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state of a dataset's audit."""

    plan: AuditPlan
    is_new: bool
    """True if the plan was made now."""
    judged: int
    """Items judged in turn."""
    wrong: int
    out_of_turn: int
    """Items judged before their turn, which do not count."""
    people: tuple[str, ...]
    agreement: Agreement
    certificate: Certificate | None
    """The certificate of what is proved; None while nothing is."""
    not_proved: str
    """Why the claim is not proved, or not of all items; empty if it is."""


def certify(
    dataset: Dataset,
    verdicts: Sequence[Path],
    *,
    given: Mapping[str, Any],
    judged: Path | None = None,
    output: Path | None = None,
    processes: int = 1,
    report: Callable[[int], None] = lambda rows: None,
) -> Outcome:
    """The work of :func:`glit.api.certify`.

    Args:
        dataset: a finished one.
        verdicts: files of the people who judged. A first one that does not exist is written: it
            then holds the plan alone.
        given: fields of :class:`glit.verdicts.record.Claim`; those of a plan that is there already
            must be the same.
        judged: a model's opinions on all items, which narrow the bounds.
        output: the folder of the certified dataset.
        processes: number that write files.
        report: called with the number of more rows that are written.
    """
    first, *others = verdicts
    if not first.exists():
        if output is not None or others:
            raise InputError(f"--verdicts {first}: no such file; make the plan first, without -o")
        claim = _claim(given)
        said = None if judged is None else read_judged(judged)
        plan = make_plan(items_of(dataset, claim, judged=said), claim, judged=said)
        begin(first, plan)
        nobody = Record(plan, ())
        return Outcome(
            plan=plan, is_new=True, judged=0, wrong=0, out_of_turn=0, people=(),
            agreement=nobody.agreement(), certificate=None, not_proved="nothing is judged yet",
        )  # fmt: skip
    record = read_audit(verdicts)
    claim = record.plan.claim
    for name in given:
        value, planned = getattr(_claim(given), name), getattr(claim, name)
        if value != planned:
            raise InputError(
                f"{first}: its plan has {name} {planned}, not {value}; a plan is "
                "fixed before the first verdict, so begin another file"
            )
    said = _opinions(record.plan, judged, first)
    items = items_of(dataset, claim, judged=said)
    finding = find(items, record)
    made = why_not = None
    if finding.proved is None:
        why_not = not_proved(items, record, finding)
        if output is not None:
            raise InputError(why_not)
    elif output is not None and claim.of == "repairs":
        raise InputError("-o: glit pairs apply --judged writes the dataset with its repairs")
    elif output is not None:
        made = write_certified(
            dataset, output, record, judged=said, processes=processes, report=report
        )
    else:
        made = certificate(items, record, finding)
    if made is not None and made.part < len(record.plan.parts) - 1:
        failed = finding.tested[-1]
        why_not = (
            f"not of more: {failed.wrong} of {failed.judged} judged of the next part are wrong"
        )
    return Outcome(
        plan=record.plan, is_new=False, judged=len(finding.judged), wrong=int(finding.wrong.sum()),
        out_of_turn=finding.out_of_turn, people=record.people, agreement=record.agreement(),
        certificate=made, not_proved=why_not or "",
    )  # fmt: skip


def _opinions(plan: AuditPlan, judged: Path | None, verdicts: Path) -> Judged | None:
    """The opinions that the plan was made with.

    Raises:
        InputError: the file is missing, another, or not wanted.
    """
    said = None if judged is None else read_judged(judged)
    if plan.judged_sha256 != ("" if said is None else said.sha256):
        wanted = "the file that it was made with" if plan.judged_sha256 else "none"
        raise InputError(f"--judged: the plan of {verdicts} wants {wanted}")
    return said


def _claim(given: Mapping[str, Any]) -> Claim:
    try:
        return from_plain(Claim, dict(given))
    except MisfitError as error:
        raise InputError(f"a claim of {error}") from error


def write_certified(
    dataset: Dataset,
    output: Path,
    record: Record,
    *,
    judged: Judged | None = None,
    processes: int = 1,
    report: Callable[[int], None] = lambda rows: None,
) -> Certificate:
    """Write the dataset with a certificate; the certificate.

    Args:
        dataset: the one that was judged.
        output: a folder that does not exist yet; it appears when everything is written.
        record: the verdicts.
        judged: a model's opinions, if the plan was made with them.
        processes: how many write files, where pairs change.
        report: called with so many more rows that are finished.

    Raises:
        InputError: the claim is not proved, the verdicts are of another dataset, people disagree,
            or the folder exists.
        DatasetError: a file of the dataset is damaged.
    """
    before = dataset.manifest
    items = items_of(dataset, record.plan.claim, judged=judged)
    finding = find(items, record)
    kept = record.only(finding.names)
    made = certificate(items, kept, finding)
    with new_folder(output) as folder:
        if made.plan.claim.of == "pairs" and made.min_probability is not None:
            manifest = _cut(dataset, folder, made, processes, report)
        else:
            manifest = change_rows(dataset, folder, None, report=report)
        (folder / made.verdicts).write_bytes(kept.as_bytes())
        files = {made.verdicts: describe_file(folder / made.verdicts, len(kept))}
        if judged is not None:
            (folder / made.opinions).write_bytes(judged.as_bytes())
            files[made.opinions] = describe_file(folder / made.opinions, len(judged.of))
        others = tuple(
            each for each in before.certificates if each.plan.claim.of != made.plan.claim.of
        )
        finish(
            folder, dataclasses.replace(manifest, files={**manifest.files, **files}),
            name=output.name, sources=[dataset], certificates=(*others, made),
        )  # fmt: skip
        for fault in faults(Dataset(folder)):
            raise DatasetError(f"{output}: {fault}; is the condition of --where about pairs?")
    return made


def _cut(
    dataset: Dataset,
    folder: Path,
    made: Certificate,
    processes: int,
    report: Callable[[int], None],
) -> Manifest:
    """Write the data files with the pairs of the certified part; the others lose their region."""
    if made.plan.claim.where:
        raise InputError(
            "a claim on the largest part of the pairs cannot have --where as well: select the "
            "samples first with glit select --where"
        )
    if len(dataset.manifest.all_rules) > 1:
        raise InputError(
            f"{dataset.path}: its pairs are of several rules; certify its parts before glit merge"
        )
    require_regions(dataset.manifest, dataset.path, wanted_by="glit pair wants")
    config = pair_config(dataset.manifest, None, [f"pair.min_probability={made.min_probability!r}"])
    return write_with_pairs(dataset, folder, config, processes=processes, report=report)
