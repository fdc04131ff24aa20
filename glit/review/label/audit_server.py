"""Ask for the verdicts of an audit, in the order of its plan, on the labelling page."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.dataset.certificate import find, items_of
from glit.dataset.columns import NestedColumn
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.verdicts.judged import read_judged
from glit.verdicts.record import (
    PARTS,
    AuditVerdict,
    Kind,
    Name,
    Record,
    Said,
    append,
    read_audit,
)

_UNSURE = ("unsure", "Cannot tell")
ANSWERS: dict[Kind, tuple[tuple[AuditVerdict, str], ...]] = {
    "pairs": (
        ("right", "Right: it describes what is in the box"),
        ("wrong", "Wrong: what it describes is elsewhere in the image"),
        ("none", "No region: true, but no box could hold it"),
        ("false", "False: it is not true of the image"),
        _UNSURE,
    ),
    "sentences": (
        ("right", "Right: all of it is true of the image"),
        ("false", "False: some of it is not true of the image"),
        _UNSURE,
    ),
    "phrases": (
        ("right", "Right: the box holds what the words name"),
        ("wrong", "Wrong: the box holds something else, or only a part"),
        _UNSURE,
    ),
    "boxes": (
        ("right", "Right: the box holds this, and all of it"),
        ("wrong", "Wrong: the box holds something else, or only a part"),
        _UNSURE,
    ),
}
"""The verdicts that a person can choose from, in the words of the page."""
ANSWERS["repairs"] = ANSWERS["pairs"]


class AuditQuestions:
    """The items of a plan and one person's verdicts; thread-safe.

    Args:
        dataset: the one that the plan was made for.
        file: the record of the audit.
        by: who judges.
        judged: the opinions of a model, if the plan is of its repairs.
        settle: ask for the items on which people disagree.

    Raises:
        InputError: the file is no audit, or of another dataset; or nobody disagrees.
    """

    def __init__(
        self,
        dataset: Dataset,
        file: Path,
        *,
        by: str,
        judged: Path | None = None,
        settle: bool = False,
    ) -> None:
        self._dataset, self._file, self._by, self._settle = dataset, file, by, settle
        self._record = read_audit([file])
        plan = self._record.plan
        said = None if judged is None else read_judged(judged)
        self._items = items_of(dataset, plan.claim, judged=said)
        self._finding = find(self._items, self._record)
        self._lock = threading.Lock()
        order = self._items.population.order(
            seed=plan.claim.seed, num=max(plan.verdicts, len(self._record))
        )
        self._asked: list[int] = order.tolist()
        if settle:
            disputed = self._record.agreement().disputed
            if not disputed:
                raise InputError(f"{file}: nobody disagrees, so there is nothing to settle")
            numbers = [self._items.find(name) for name in disputed]
            self._asked = [number for number in numbers if number is not None]
        rows = pa.array(self._items.row[self._asked])
        ids = dataset.table(["sample_id"]).column("sample_id").take(rows).to_pylist()
        self._ids: dict[int, str] = dict(zip(self._asked, ids, strict=True))

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def what(self) -> str:
        """The number and kind of the items that are judged, for the terminal."""
        return f"{len(self)} {self._record.plan.claim.of}"

    def question(self, number: int) -> dict[str, Any]:
        """The page's data for an item.

        Raises:
            InputError: there is no such question.
        """
        at = self._item(number)
        items, of = self._items, self._record.plan.claim.of
        row = self._dataset[int(items.row[at])]
        first, second = int(items.first[at]), int(items.second[at])
        box, span, text = None, None, ""
        if of == "phrases":
            phrase = self._phrase(int(items.row[at]), first)
            span, text = phrase[:2], phrase[2]
        elif of == "boxes":
            text = row.regions[first].label
        else:
            sentence = row.sentences[first]
            span, text = (sentence.char_start, sentence.char_end), sentence.text
        if of != "sentences":
            box = list(row.regions[first if of == "boxes" else second].box.xyxy)
        caption = row.caption.text
        own = self._record.of.get(self._name(at), {})
        said = own.get(self._by)
        return {
            "number": number, "total": len(self), "of": of, "path": row.source_path,
            "size": [row.width, row.height], "box": box, "sentence": text,
            "before": caption[: span[0]] if span else "",
            "after": caption[span[1] :] if span else "",
            "answers": ANSWERS[of], "status": self._status(),
            "verdict": said.verdict if said and not self._settle else None,
            "others": {by: each.verdict for by, each in own.items()} if self._settle else {},
        }  # fmt: skip

    def image(self, number: int) -> bytes:
        """The encoded image file of a question.

        Raises:
            InputError: there is no such question.
        """
        return self._dataset[int(self._items.row[self._item(number)])].encoded()

    def answer(self, number: int, verdict: Any) -> None:
        """Record an answer, and see what all answers prove.

        Raises:
            InputError: it is none, or the file cannot be read or written.
        """
        of = self._record.plan.claim.of
        allowed: dict[Any, AuditVerdict] = {each: each for each, _ in ANSWERS[of]}
        if verdict not in allowed:
            raise InputError(f"verdict {verdict!r}: want one of {', '.join(allowed)}")
        with self._lock:
            self._record = read_audit([self._file])
            name = self._name(self._item(number))
            before = self._record.of.get(name, {}).get(self._by)
            place: dict[str, Any] = dict(zip(PARTS[of], name[1], strict=True))
            said = Said(
                sample_id=name[0], **place,
                verdict=allowed[verdict], by=self._by, settles=self._settle,
                instead_of=None if before is None or self._settle else before.verdict,
            )  # fmt: skip
            self._record.add(append(self._file, said))
            self._finding = find(self._items, self._record)

    def first_open(self) -> int:
        """The first question that this person has not answered; 0 when all are."""
        for number, at in enumerate(self._asked):
            if self._settle or self._by not in self._record.of.get(self._name(at), {}):
                return number
        return 0

    def _item(self, number: int) -> int:
        if not 0 <= number < len(self):
            raise InputError(f"no question {number}; there are {len(self)}")
        return self._asked[number]

    def _name(self, at: int) -> Name:
        items = self._items
        numbers = (int(items.first[at]), int(items.second[at]))
        return self._ids[at], numbers[: len(PARTS[items.of])]

    def _phrase(self, row: int, phrase: int) -> tuple[int, int, str]:
        group, place = self._dataset.locate(row)
        column = NestedColumn(self._dataset.table(["phrases"], row_group=group).column("phrases"))
        at = int(column.start[place]) + phrase
        return int(column["char_start"][at]), int(column["char_end"][at]), column["text"][at]

    def _status(self) -> str:
        """Return how far the audit is, in a sentence."""
        return status(self._record, len(self._finding.judged), self._finding.proved)


def status(record: Record, judged: int, proved: int | None) -> str:
    """Return how far an audit is, in a sentence."""
    plan = record.plan
    whole = proved == len(plan.parts) - 1
    if whole:
        return f"Enough: the claim is proved by {judged} verdicts. You can stop here."
    said = "the claim is proved of a part; " if proved is not None else ""
    if judged >= plan.verdicts:
        return f"{said}{judged} verdicts, as many as planned"
    about = "" if plan.expected is None else f", and about {plan.expected} may be enough"
    return f"{said}{judged} verdicts, {plan.verdicts} planned{about}"
