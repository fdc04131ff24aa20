"""Serve the page for judging pairs to a browser on this machine."""

from __future__ import annotations

import threading
from importlib.resources import files
from pathlib import Path
from typing import Any

from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import InputError
from glit.review.label.audit_server import ANSWERS, AuditQuestions
from glit.review.label.choose import choose, pair_of
from glit.review.label.verdicts import VERDICTS, JudgedPair, add_verdict, read_verdicts
from glit.runtime.local_server import Answer, Site, as_json, shown, whole_number


class LabelSite(Site):
    """The labelling page, its questions and images; receives answers."""

    policy = (
        "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
    )

    def __init__(self, questions: PairQuestions | AuditQuestions) -> None:
        self._questions = questions

    def answer(self, address: str) -> Answer:
        part, _, number = address.strip("/").partition("/")
        if not part:
            page = files("glit.review.label").joinpath("page.html").read_text("utf-8")
            return page.encode(), "text/html; charset=utf-8"
        if part == "next":
            return as_json(self._questions.first_open())
        if part == "question":
            return as_json(self._questions.question(whole_number(number)))
        if part == "image":
            return shown(self._questions.image(whole_number(number)))
        raise InputError(f"nothing at {address}")

    def take(self, address: str, said: Any) -> Answer:
        if not isinstance(said, dict) or type(said.get("number")) is not int:
            raise InputError("want a number and a verdict")
        self._questions.answer(said["number"], said.get("verdict"))
        return as_json({})


class PairQuestions:
    """The pairs to judge and the answers so far; thread-safe."""

    def __init__(self, dataset: Dataset, answers: Path, *, num: int, seed: int) -> None:
        self._dataset = dataset
        self._answers = answers
        self._seed = seed
        self._rows = choose(dataset, num=num, seed=seed)
        self._given = read_verdicts(answers)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def question(self, number: int) -> dict[str, Any]:
        """The page's data for a pair, with its answer if there is one.

        Raises:
            InputError: there is no such question.
        """
        row, labelled = self._asked(number)
        sentence, region = row.sentences[labelled["sentence"]], row.regions[labelled["region"]]
        given = self._given.get((row.sample_id, labelled["sentence"]))
        return {
            "number": number,
            "total": len(self),
            "of": "pairs",
            "path": row.source_path,
            "size": [row.width, row.height],
            "box": list(region.box.xyxy),
            "before": row.caption.text[: sentence.char_start],
            "sentence": sentence.text,
            "after": row.caption.text[sentence.char_end :],
            "answers": ANSWERS["pairs"][: len(VERDICTS)],
            "status": "",
            "verdict": None if given is None else given.verdict,
        }

    def image(self, number: int) -> bytes:
        """The encoded image file of a question.

        Raises:
            InputError: there is no such question.
        """
        return self._asked(number)[0].encoded()

    def answer(self, number: int, verdict: Any) -> None:
        """Record an answer.

        Raises:
            InputError: it is none, or the file cannot be written.
        """
        if verdict not in VERDICTS:
            raise InputError(f"verdict {verdict!r}: want one of {', '.join(VERDICTS)}")
        _, labelled = self._asked(number)
        made = JudgedPair(**labelled, verdict=verdict)
        with self._lock:
            add_verdict(self._answers, made)
            self._given[made.key] = made

    def first_open(self) -> int:
        """The first question without an answer; 0 when all have one."""
        for number in range(len(self)):
            row, labelled = self._asked(number)
            if (row.sample_id, labelled["sentence"]) not in self._given:
                return number
        return 0

    def _asked(self, number: int) -> tuple[Row, dict[str, Any]]:
        if not 0 <= number < len(self):
            raise InputError(f"no question {number}; there are {len(self)}")
        row = self._dataset[self._rows[number]]
        pair = pair_of(row.pairs, number=self._rows[number], seed=self._seed)
        return row, {"sample_id": row.sample_id, "sentence": pair.sentence, "region": pair.region}
