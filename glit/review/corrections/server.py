"""Serve the page on which a person corrects samples to a browser on this machine."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from glit.dataset.manifest import MANIFEST, require_regions
from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.dataset.select import select
from glit.errors import InputError
from glit.images import ImageError
from glit.review.corrections.journal import DEEDS, Journal, State, state_of
from glit.runtime.local_server import Answer, Site, as_json, shown, whole_number
from glit.storage.store import Store

_MOST_FOUND = 200


class Samples:
    """The samples to correct, and what was said of them so far; thread-safe.

    Args:
        dataset: a finished one.
        corrections: the file to append to.
        by: who corrects.
        where: a condition in SQL for the samples; empty takes all.

    Raises:
        UserError: the file is of another dataset, or no sample meets the condition.
    """

    def __init__(self, dataset: Dataset, corrections: Path, *, by: str, where: str = "") -> None:
        require_regions(dataset.manifest, dataset.path, wanted_by="glit pairs correct shows")
        self._dataset = dataset
        self.rows: Sequence[int] = range(len(dataset))
        if where.strip():
            with connect(dataset) as connection:
                self.rows = select(dataset, connection, where=where).numbers
        names = dataset.table(["sample_id", "source_path"]).to_pylist()
        ids = [each["sample_id"] for each in names]
        self._ids = [ids[number] for number in self.rows]
        self._paths = [names[number]["source_path"] for number in self.rows]
        words = ("glit", "pairs", "apply", dataset.path, "--corrections", str(corrections))
        self._command = shlex.join((*words, "-o", f"{dataset.path.rstrip('/')}-corrected"))
        self._places = {sample_id: place for place, sample_id in enumerate(self._ids)}
        manifest = hashlib.sha256(Store(dataset.path).read(MANIFEST)).hexdigest()
        self.journal = Journal(corrections, manifest, by=by)
        if unknown := set(self.journal) - set(ids):
            raise InputError(f"{corrections}: no sample {min(unknown)} in {dataset.path}")

    def __len__(self) -> int:
        return len(self.rows)

    def first_open(self) -> int:
        """The sample to go on with: that of the last line, or if it was called right the next one
        that was not."""
        last = self._places.get(self.journal.last or "", 0)
        order = [*range(last, len(self)), *range(last)]
        return next((number for number in order if not self._is_right(number)), last)

    def num_right(self) -> int:
        """Return how many were called right."""
        return sum(map(self._is_right, range(len(self))))

    def find(self, words: str) -> dict[str, Any]:
        """The first samples whose paths contain these words, in any case: number, path, whether it
        was called right; how many more there are; and the command that applies the corrections."""
        self.journal.refresh()
        wanted = words.casefold()
        found = [n for n, path in enumerate(self._paths) if wanted in path.casefold()]
        rows = [(n, self._paths[n], self._is_right(n)) for n in found[:_MOST_FOUND]]
        return {"found": rows, "more": len(found) - len(rows), "command": self._command}

    def sample(self, number: int) -> dict[str, Any]:
        """The page's data for a sample.

        Raises:
            InputError: there is no such sample.
        """
        row = self.row(number)
        self.journal.refresh()
        state, seen, by = self.journal.of(row.sample_id)
        review = row.extra.get("review") or {"tags": [], "note": ""}
        state = state or State(tags=tuple(review["tags"]), note=review["note"])
        _check(state, row)
        regions = {p.sentence: None if p.global_wins else p.region for p in row.pairs}
        probability = {p.sentence: p.probability for p in row.pairs}
        return {
            "number": number, "total": len(self), "right": self.num_right(),
            "id": row.sample_id, "path": row.source_path, "size": [row.width, row.height],
            "sentences": [
                {"text": each.text, "region": regions.get(index), "p": probability.get(index)}
                for index, each in enumerate(row.sentences)
            ],
            "regions": [
                {"box": each.box.xyxy, "label": each.label, "source": each.source}
                for each in row.regions
            ],
            "state": state.as_json(), "seen": seen, "by": by,
        }  # fmt: skip

    def say(self, number: int, said: dict[str, Any]) -> None:
        """Append what a person said of a sample.

        Raises:
            InputError: it is impossible, somebody else changed the sample meanwhile, or the file
                cannot be written.
        """
        row = self.row(number)
        state, did, seen = state_of(said.get("state")), said.get("did"), said.get("seen")
        if did not in DEEDS or did == "undo" or type(seen) is not int:
            raise InputError("want what was done, and the number of lines that were seen")
        _check(state, row)
        self.journal.add(row.sample_id, state, did, seen=seen)

    def undo(self) -> int:
        """Undo this person's last step; the number of its sample.

        Raises:
            InputError: there is nothing to undo.
        """
        return self._places[self.journal.undo(self._places)]

    def row(self, number: int) -> Row:
        """The row of a sample.

        Raises:
            InputError: there is no such sample.
        """
        if not 0 <= number < len(self):
            raise InputError(f"no sample {number}; there are {len(self)}")
        return self._dataset[self.rows[number]]

    def image(self, sample_id: str) -> bytes:
        """The encoded image file of a sample; by its id, because browsers keep images.

        Raises:
            InputError: there is no such sample.
        """
        if sample_id not in self._places:
            raise InputError("no such image")
        return self.row(self._places[sample_id]).encoded()

    def _is_right(self, number: int) -> bool:
        state = self.journal.of(self._ids[number])[0]
        return state is not None and state.right


def _check(state: State, row: Row) -> None:
    state.check(
        sentences=len(row.sentences), regions=len(row.regions), width=row.width, height=row.height
    )


class CorrectSite(Site):
    """The page, its samples and images; receives corrections."""

    policy = (
        "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
    )
    longest_body = 1 << 18

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def answer(self, address: str) -> Answer:
        part, _, number = address.strip("/").partition("/")
        if not part:
            page = files("glit.review.corrections").joinpath("page.html").read_text("utf-8")
            return page.encode(), "text/html; charset=utf-8"
        if part == "next":
            return as_json(self._samples.first_open())
        if part == "find":
            return as_json(self._samples.find(unquote(number)))
        if part == "sample":
            return as_json(self._samples.sample(whole_number(number)))
        if part == "image":
            try:
                return shown(self._samples.image(number))
            except ImageError as error:
                raise InputError(f"the image is damaged: {error}") from error
        raise InputError(f"nothing at {address}")

    def take(self, address: str, said: Any) -> Answer:
        if not isinstance(said, dict):
            raise InputError("want a correction")
        if address == "/undo":
            return as_json(self._samples.sample(self._samples.undo()))
        number = said.get("number")
        if address != "/say" or type(number) is not int:
            raise InputError("want a number and a correction")
        self._samples.say(number, said)
        return as_json(self._samples.sample(number))
