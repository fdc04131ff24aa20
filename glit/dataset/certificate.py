"""Certificates of a dataset: which items a claim is of, whether it is proved, and whether it still
holds."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from glit.data.records import GRID_SOURCES
from glit.data.schema import GROUNDING
from glit.dataset.columns import NestedColumn
from glit.dataset.manifest import Certificate, require_regions
from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.dataset.select import select
from glit.errors import DatasetError, InputError, UserError, first_line
from glit.storage.store import Store
from glit.verdicts.claims import (
    Audited,
    Part,
    bounds,
    fewest_verdicts,
    growing_parts,
    inside,
    largest_part,
    needed,
    verdicts_of_test,
)
from glit.verdicts.draw import Population, mixed, uncertainty, weights
from glit.verdicts.judged import Judged, chance_wrong, read_judged
from glit.verdicts.record import AuditPlan, Claim, Kind, Name, Record, read_audit

_COLUMNS = {
    "pairs": ["sample_id", "pairs"],
    "sentences": ["sample_id", "sentences", "pairs"],
    "phrases": ["sample_id", "groundings"],
    "boxes": ["sample_id", "regions"],
}
_SAMPLE_ID = re.compile(r"[0-9a-f]{64}")
_SLACK = 1e-6
"""By which numbers may differ from machine to machine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The items of one kind in a dataset, as flat arrays."""

    of: Kind
    row: Int[np.ndarray, " n"]
    """Number of the sample's row."""
    first: Int[np.ndarray, " n"]
    """The first of the numbers that :data:`glit.verdicts.record.PARTS` names."""
    second: Int[np.ndarray, " n"]
    """The second; -1 where there is none."""
    probability: Float[np.ndarray, " n"]
    """Probability that the item is right; NaN where it is not known."""
    typical: float
    """Mean uncertainty of all items; see :func:`glit.verdicts.draw.weights`."""
    population: Population

    def __len__(self) -> int:
        return len(self.row)

    def part(self, most_predicted: float) -> Items:
        """The items whose predicted chance to be wrong is at most this."""
        chosen = self.population.predicted <= most_predicted
        return Items(
            of=self.of, row=self.row[chosen], first=self.first[chosen], second=self.second[chosen],
            probability=self.probability[chosen], typical=self.typical,
            population=self.population.part(chosen),
        )  # fmt: skip

    @cached_property
    def _by_key(self) -> Int[np.ndarray, " n"]:
        return np.argsort(self.population.key, kind="stable")

    @property
    def sha256(self) -> str:
        """Identity of the items and their probabilities, whatever their order in the files."""
        order = self._by_key
        digest = hashlib.sha256(self.of.encode())
        digest.update(self.population.key[order].astype("<u8").tobytes())
        digest.update(self.population.predicted[order].astype("<f8").tobytes())
        return digest.hexdigest()

    def find(self, name: Name) -> int | None:
        """The number of the item of this name; None if there is none."""
        sample_id, numbers = name
        if not _SAMPLE_ID.fullmatch(sample_id):
            return None
        first, second = (*numbers, -1)[:2]
        prefix = np.array([int(sample_id[:16], 16)], np.uint64)
        key = _keys(prefix, np.array([first]), np.array([second]))
        place = int(np.searchsorted(self.population.key, key[0], sorter=self._by_key))
        if place == len(self):
            return None
        number = int(self._by_key[place])
        return number if self.population.key[number] == key[0] else None


def items_of(
    dataset: Dataset, claim: Claim, *, typical: float | None = None, judged: Judged | None = None
) -> Items:
    """The items of a dataset that a claim is of.

    Args:
        dataset: a finished one.
        claim: of ``pairs``: recommended ones; the probability is the calibration's. Of
            ``sentences``: with their support. Of ``phrases``: with their region; the probability is
            the grounder's score. Of ``boxes``: those that a model proposed and named; it is the
            detector's score. Of ``repairs``: the pairs that the opinions name in place of those
            that they call wrong.
        typical: mean uncertainty of the plan's items, if these are a part of them.
        judged: a model's opinions on all of them, which narrow the bounds.

    Raises:
        UserError: the dataset has none, DuckDB does not accept the condition, or an item has no
            opinion.
        DatasetError: a file of the dataset is damaged.
    """
    of, where = claim.of, claim.where
    if of != "sentences":
        require_regions(dataset.manifest, dataset.path, wanted_by=f"a claim on {of} wants")
    if of == "phrases" and "groundings" not in dataset.schema.names:
        raise InputError(f"{dataset.path}: it has no grounded phrases; build it with [ground]")
    chosen = np.ones(len(dataset), bool)
    if where.strip():
        with connect(dataset) as connection:
            numbers = select(dataset, connection, where=where).numbers
        chosen[:] = False
        chosen[list(numbers)] = True
    read = _read(dataset, of) if of != "repairs" else _repairs(dataset, judged)
    found = [each for each in read if len(each[0])]
    columns = [np.concatenate(each) for each in zip(*found, strict=True)] if found else []
    kept = chosen[columns[0]] if columns else np.zeros(0, bool)
    if not kept.any():
        raise InputError(f"{dataset.path}: no {of} to judge{' --where ' + where if where else ''}")
    row, prefix, first, second, probability = (each[kept] for each in columns)
    predicted = _predicted(probability)
    if typical is None:
        typical = float(uncertainty(predicted).mean())
    key = _keys(prefix, first, second)
    population = Population(
        key=key, predicted=predicted, weight=weights(predicted, typical=typical),
        control=predicted
        if judged is None or of == "repairs"
        else (predicted + _opinions(key, judged, of)) / 2,
    )  # fmt: skip
    if len(np.unique(population.key)) < len(population):
        raise DatasetError(f"{dataset.path}: a sample is there twice; run 'glit verify'")
    return Items(
        of=of, row=row, first=first, second=second, probability=probability, typical=typical,
        population=population,
    )  # fmt: skip


def _read(dataset: Dataset, of: Kind) -> Iterator[tuple[np.ndarray, ...]]:
    """Read by row group: row, first 64 bits of the sample's hash, the two numbers, probability."""
    start = 0
    for group in range(len(dataset.places)):
        table = dataset.table(_COLUMNS[of], row_group=group)
        if of == "phrases" and table.schema.field("groundings").type.value_type != GROUNDING:
            raise InputError(f"{dataset.path}: its column groundings is somebody else's")
        ids = table.column("sample_id").to_pylist()
        prefix = np.array([int(each[:16], 16) for each in ids], np.uint64)
        first, second, row, probability = _flat(of, table)
        yield start + row, prefix[row], first, second, probability
        start += len(ids)


def _repairs(dataset: Dataset, judged: Judged | None) -> Iterator[tuple[np.ndarray, ...]]:
    """The same of the pairs that a model names in place of those that it calls wrong.

    Raises:
        InputError: there are no opinions, or they are of other pairs.
    """
    if judged is None:
        raise InputError("a claim on repairs wants the opinions of glit pairs judge: --judged")
    said = judged.judging
    own = None if said.of != "pairs" else items_of(dataset, Claim(of="pairs", where=said.where))
    if own is None or own.sha256 != said.items_sha256:
        raise InputError(f"{dataset.path}: the model judged {said.of} of another dataset")
    ids = dataset.table(["sample_id"]).column("sample_id").to_pylist()
    number = {sample_id: row for row, sample_id in enumerate(ids)}
    found = [(number[i], i, s, r) for (i, (s, _)), r in judged.repairs.items() if i in number]
    tables = (dataset.table(["regions"], row_group=n) for n in range(len(dataset.places)))
    columns = [NestedColumn(table.column("regions")) for table in tables]
    regions = np.concatenate([column.counts for column in columns])
    for row, _, sentence, region in found:
        if region >= regions[row]:
            raise InputError(f"sentence {sentence}: its sample has {regions[row]} regions")
    yield (
        np.array([row for row, *_ in found], np.int64),
        np.array([int(sample_id[:16], 16) for _, sample_id, *_ in found], np.uint64),
        np.array([sentence for *_, sentence, _ in found], np.int64),
        np.array([region for *_, region in found], np.int64),
        np.full(len(found), np.nan),
    )


def _flat(of: Kind, table: Any) -> tuple[np.ndarray, ...]:
    """The two numbers, the row and the probability of every item of a table."""
    if of == "phrases":
        found = NestedColumn(table.column("groundings"))
        score = np.clip(np.asarray(found["score"], np.float64), 0, 1)
        return np.asarray(found["phrase"]), np.asarray(found["region"]), found.row, score
    if of == "boxes":
        found = NestedColumn(table.column("regions"))
        row = found.row
        number = np.arange(len(row)) - found.start[:-1][row]
        named = np.array([bool(label) for label in found["label"]], bool)
        kept = named & ~np.isin(np.array(found["source"], dtype=object), GRID_SOURCES)
        score = np.clip(np.asarray(found["score"], np.float64), 0, 1)
        return number[kept], np.full(int(kept.sum()), -1), row[kept], score[kept]
    pairs = NestedColumn(table.column("pairs"))
    row, sentence = pairs.row, np.asarray(pairs["sentence"])
    if of == "pairs":
        kept = ~np.asarray(pairs["global_wins"], bool)
        probability = np.asarray(pairs["probability"], np.float64)
        return sentence[kept], np.asarray(pairs["region"])[kept], row[kept], probability[kept]
    sentences = NestedColumn(table.column("sentences"))
    own = sentences.row
    support = np.full(len(own), np.nan)
    support[sentences.start[:-1][row] + sentence] = pairs["support"]
    return np.arange(len(own)) - sentences.start[:-1][own], np.full(len(own), -1), own, support


def _predicted(probability: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The chance to be wrong; one half if no probability is known, else the greatest known."""
    known = ~np.isnan(probability)
    wrong = 1 - np.clip(probability, 0, 1)
    return np.where(known, wrong, wrong[known].max() if known.any() else 0.5)


def _keys(
    prefix: UInt64[np.ndarray, " n"], first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]
) -> UInt64[np.ndarray, " n"]:
    place = (first.astype(np.int64) << 32) ^ (second.astype(np.int64) & 0xFFFFFFFF)
    return mixed(prefix ^ mixed(place.astype(np.uint64)))


def _opinions(key: UInt64[np.ndarray, " n"], judged: Judged, of: Kind) -> Float[np.ndarray, " n"]:
    """The chance to be wrong that a model's opinions give every item.

    Raises:
        InputError: they are of another kind, say nothing, or are missing.
    """
    if judged.judging.of != of:
        raise InputError(f"the model judged {judged.judging.of}, and the claim is of {of}")
    if judged.fault:
        raise InputError(f"{judged.fault}: its opinions say nothing")
    said = {name: each for name, each in judged.of.items() if _SAMPLE_ID.fullmatch(name[0])}
    places = np.array([(*numbers, -1)[:2] for _, numbers in said], np.int64).reshape(-1, 2)
    prefix = np.array([int(sample_id[:16], 16) for sample_id, _ in said], np.uint64)
    wrong = np.array([chance_wrong(each.verdict) for each in said.values()])
    own = _keys(prefix, places[:, 0], places[:, 1])
    order = np.argsort(own)
    at = np.searchsorted(own, key, sorter=order)
    found = order[np.minimum(at, len(own) - 1)] if len(own) else np.zeros(len(key), int)
    missing = np.ones(len(key), bool) if not len(own) else own[found] != key
    if missing.any():
        raise InputError(
            f"the model judged all but {int(missing.sum())} of {len(key)} {of}; run glit pairs "
            "judge again"
        )
    return wrong[found]


def make_plan(items: Items, claim: Claim, *, judged: Judged | None = None) -> AuditPlan:
    """The plan for a claim: how many verdicts are wanted, and of which parts.

    Raises:
        InputError: so few verdicts cannot prove it.
    """
    fewest = fewest_verdicts(error=claim.error, alpha=claim.alpha, items=len(items))
    if claim.part == "all" and 0 < claim.verdicts < fewest:
        raise InputError(
            f"--num {claim.verdicts}: a claim of {claim.error:g} with confidence "
            f"{claim.confidence:g} wants {fewest} verdicts at the least, all of them right"
        )
    found = needed(
        items.population, error=claim.error, alpha=1 - claim.confidence, verdicts=claim.verdicts
    )
    parts: tuple[Part, ...] = (Part(most_predicted=1.0, verdicts=found.verdicts),)
    if claim.part == "largest":
        parts = growing_parts(
            items.population, error=claim.error, alpha=1 - claim.confidence, verdicts=found.verdicts
        )
    return AuditPlan(
        claim=claim, parts=parts, typical=items.typical, verdicts=found.verdicts,
        expected=found.expected, judged_sha256="" if judged is None else judged.sha256,
        items=len(items), items_sha256=items.sha256,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditFinding:
    """The result of people's verdicts on a dataset."""

    tested: tuple[Audited, ...]
    """The parts that were tested, growing."""
    judged: Int[np.ndarray, " t"]
    """The items that were judged in turn, in the order of the draw."""
    wrong: Bool[np.ndarray, " t"]
    names: tuple[Name, ...]
    out_of_turn: int
    """Judged items that were not yet to be judged, which do not count."""

    @property
    def proved(self) -> int | None:
        """The place of the largest part for which the claim is proved."""
        numbers = [n for n, each in enumerate(self.tested) if each.proved_after is not None]
        return numbers[-1] if numbers else None


def find(items: Items, record: Record, *, of_part: int | None = None) -> AuditFinding:
    """Test a plan's claim by the verdicts.

    Args:
        items: the population of the plan.
        record: the verdicts.
        of_part: if the items are no more than this part, its place.

    Raises:
        InputError: the verdicts are of other items, or of one that is not there.
    """
    plan = record.plan
    if of_part is None and plan.items_sha256 != items.sha256:
        raise InputError(
            "the verdicts are of another dataset, or its pairs or their probabilities are others "
            "than when the plan was made"
        )
    number: dict[int, Name] = {}
    for name in record.of:
        at = items.find(name)
        if at is not None:
            number[at] = name
        elif of_part is None:
            raise InputError(
                f"{name[0]}: {' '.join(map(str, name[1]))} is none of the {plan.claim.of} to judge"
            )
    order = items.population.order(seed=plan.claim.seed, num=max(len(number), 1))
    in_turn = next((n for n, at in enumerate(order.tolist()) if at not in number), len(order))
    judged = order[:in_turn]
    names = tuple(number[at] for at in judged.tolist())
    wrong = np.array([record.is_wrong(name) for name in names], bool)
    parts = plan.parts if of_part is None else plan.parts[: of_part + 1]
    tested = largest_part(
        items.population, judged, wrong, parts, error=plan.claim.error, alpha=plan.claim.alpha
    )
    return AuditFinding(
        tested=tuple(tested), judged=judged, wrong=wrong, names=names,
        out_of_turn=len(number) - in_turn,
    )  # fmt: skip


def certificate(items: Items, record: Record, finding: AuditFinding) -> Certificate:
    """The certificate of what is proved.

    Raises:
        InputError: nothing is proved yet; says how many verdicts may be wanted.
    """
    plan, number = record.plan, finding.proved
    if number is None:
        raise InputError(not_proved(items, record, finding))
    audited = finding.tested[number]
    own = inside(items.population, finding.judged, finding.wrong, audited.part)
    found = bounds(*own, alpha=plan.claim.alpha, deadline=audited.part.verdicts)
    agreement = record.agreement()
    of_part = items.part(audited.part.most_predicted)
    is_all = number == len(plan.parts) - 1
    return Certificate(
        plan=plan,
        part=number,
        items=len(of_part),
        items_sha256=of_part.sha256,
        min_probability=None if is_all else float(np.nanmin(of_part.probability)),
        judged=audited.judged,
        wrong=audited.wrong,
        proved_after=audited.proved_after or 0,
        estimate=found.estimate,
        at_most=min(found.at_most, plan.claim.error),
        at_least=found.at_least,
        plain_at_most=found.plain_at_most,
        judges=record.people,
        judged_by_two=agreement.items,
        kappa=agreement.kappa,
        verdicts=f"verdicts-{plan.claim.of}.jsonl",
        opinions=f"judged-{plan.claim.of}.jsonl" if plan.judged_sha256 else "",
    )


def not_proved(items: Items, record: Record, finding: AuditFinding) -> str:
    """Why a claim is not proved yet, and with how many verdicts it could be."""
    plan, first = record.plan, finding.tested[0]
    claim = plan.claim
    said = f"{first.wrong} of {first.judged} {claim.of} judged are wrong"
    of_part = int((items.population.predicted <= first.part.most_predicted).sum())
    fewest = fewest_verdicts(error=claim.error, alpha=claim.alpha, items=of_part)
    if first.judged < fewest:
        return (
            f"{said}; a claim of {claim.error:g} with confidence {claim.confidence:g} wants "
            f"{fewest} verdicts at the least, and {plan.verdicts} are planned"
        )
    own = inside(items.population, finding.judged, finding.wrong, first.part)
    found = bounds(*own, alpha=claim.alpha, deadline=first.part.verdicts)
    about = f"{said}, about {found.estimate:.1%} of all; proved is at most {found.at_most:.1%}"
    if found.at_least > claim.error:
        return f"{about}. More than {claim.error:.1%} are wrong: this cannot be proved"
    if found.estimate >= claim.error:
        return f"{about}. It cannot be proved unless further ones are right more often"
    more = verdicts_of_test(found.estimate, claim.error, alpha=claim.alpha)
    return f"{about}. If that goes on, about {max(more, first.judged + 1)} verdicts prove it"


def faults(dataset: Dataset) -> Iterator[str]:
    """Compute certificates again from their verdicts; a line for each that does not hold."""
    for said in dataset.manifest.certificates:
        try:
            with Store(dataset.path).local_copy(said.verdicts) as file:
                record = read_audit([file])
            if record.plan != said.plan:
                raise InputError("its plan is not that of the verdicts")
            judged = None
            if said.opinions:
                with Store(dataset.path).local_copy(said.opinions) as file:
                    judged = read_judged(file)
            items = items_of(dataset, said.plan.claim, typical=said.plan.typical, judged=judged)
            if (own := items.part(said.most_predicted)).sha256 != said.items_sha256:
                raise InputError(
                    f"it is of {said.items} {said.plan.claim.of}, and these, or their "
                    f"probabilities, are others now"
                )
            now = certificate(own, record, find(own, record, of_part=said.part))
            if not _same(said, now):
                raise InputError(f"the verdicts prove that {now.claim}; it says that {said.claim}")
        except (UserError, DatasetError, OSError) as error:
            yield f"the certificate of {said.plan.claim.of} does not hold: {first_line(error)}"


def _same(said: Certificate, now: Certificate) -> bool:
    """Return whether two certificates are the same, but for the last digits of numbers."""
    for field in dataclasses.fields(Certificate):
        a, b = getattr(said, field.name), getattr(now, field.name)
        if isinstance(a, float) and isinstance(b, float):
            if abs(a - b) > _SLACK:
                return False
        elif a != b and field.name not in ("more", "min_probability"):
            return False
    return True
