"""Read and append corrections: a JSON Lines file, one line per verdict of a person.

Every line holds all that was said of its sample so far, as a difference to the dataset, so the last
line of a sample counts. Undoing appends the state before. Several servers may append to one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import threading
import unicodedata
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, get_args

from glit.dataset.by_hand import review
from glit.errors import InputError
from glit.verdicts.lines import append_line, end_of_lines

FORMAT, VERSION = "glit-corrections", 1
_OPENING = json.dumps({"format": FORMAT})[:-1].encode()
"""The beginning of every line."""
Did = Literal[
    "move", "draw", "delete", "label", "edit", "strike", "pair", "tag", "note", "right", "undo"
]
DEEDS: tuple[str, ...] = get_args(Did)
KINDS = (
    "moved", "drawn", "deleted", "labelled", "edited", "struck", "paired", "tagged", "noted",
    "right",
)  # fmt: skip
"""Kinds of corrections that are counted: boxes, sentences, pairs and, the last three, samples."""
_SLACK = 1e-3
MOST_TEXT = 10_000
"""Characters of a sentence or a note."""
Corners = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A person's changes to a sample. Numbers are those of the dataset; drawn boxes follow."""

    boxes: Mapping[int, Corners] = field(default_factory=dict)
    """Moved regions, and drawn ones by numbers from the number of regions on."""
    deleted: tuple[int, ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict)
    """Names of what is in a box, by the number of its region."""
    texts: Mapping[int, str] = field(default_factory=dict)
    """Sentences in other words."""
    struck: tuple[int, ...] = ()
    pairs: Mapping[int, int | None] = field(default_factory=dict)
    """By sentence its region; None for no region."""
    tags: tuple[str, ...] = ()
    note: str = ""
    right: bool = False
    """True if the person called the sample right as it stands with these changes."""

    def as_json(self) -> dict[str, Any]:
        """The value of ``state`` in a line."""
        return asdict(self)

    @property
    def changes(self) -> bool:
        """True if the sample's boxes, sentences or pairs are not those of the dataset."""
        of_boxes = self.boxes or self.deleted or self.labels
        return bool(of_boxes or self.texts or self.struck or self.pairs)

    def review(self, *, edited: Sequence[int]) -> dict[str, Any]:
        """The sample's value of the column ``review``."""
        return review(right=self.right, edited=edited, tags=self.tags, note=self.note)

    def counts(self, *, regions: int) -> dict[str, int]:
        """Return how much was changed, by :data:`KINDS`; ``regions`` is their number before."""
        drawn = {number for number in self.boxes if number >= regions} - {*self.deleted}
        return {
            "moved": len({number for number in self.boxes if number < regions} - {*self.deleted}),
            "drawn": len(drawn),
            "deleted": sum(number < regions for number in self.deleted),
            "labelled": len(self.labels.keys() - {*self.deleted}),
            "edited": len(self.texts.keys() - {*self.struck}),
            "struck": len(self.struck),
            "paired": len(self.pairs.keys() - {*self.struck}),
            "tagged": bool(self.tags),
            "noted": bool(self.note),
            "right": self.right,
        }

    def check(self, *, sentences: int, regions: int, width: int, height: int) -> None:
        """Check that a sample of the dataset can be changed so.

        Raises:
            InputError: a number or a box is impossible there.
        """
        for number in (*self.texts, *self.struck, *self.pairs):
            if not 0 <= number < sentences:
                raise InputError(f"sentence {number}: the sample has {sentences}, counted from 0")
        there = {*range(regions), *self.boxes}
        paired = [each for each in self.pairs.values() if each is not None]
        for number in (*self.deleted, *self.labels, *paired):
            if number not in there:
                raise InputError(f"region {number}: the sample has {regions}, counted from 0")
        for number, each in self.pairs.items():
            if each in self.deleted:
                raise InputError(f"sentence {number}: its region {each} is deleted")
        for number, (x0, y0, x1, y1) in self.boxes.items():
            if number < 0:
                raise InputError(f"box {number}: boxes are counted from 0")
            inside = x0 >= 0 and y0 >= 0 and x1 <= width + _SLACK and y1 <= height + _SLACK
            if not (inside and x1 - x0 >= 1 and y1 - y0 >= 1):
                raise InputError(
                    f"box {number}: ({x0:g}, {y0:g}, {x1:g}, {y1:g}) is smaller than a pixel or "
                    f"leaves the {width}x{height} image"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a file of corrections."""

    dataset: str
    """SHA-256 of the dataset's manifest."""
    by: str
    at: str
    sample_id: str
    did: Did
    state: State | None
    """None after undoing everything: the sample is as in the dataset."""
    where: str = ""
    """File and line, for messages."""


def state_of(value: Any) -> State:
    """The state in a line, or in what the page sends.

    Raises:
        InputError: it is none.
    """
    try:
        known = dict(value)
        found = State(
            boxes={int(key): _corners(box) for key, box in known.pop("boxes", {}).items()},
            deleted=tuple(sorted({_whole(each) for each in known.pop("deleted", ())})),
            labels={int(key): _words(text) for key, text in known.pop("labels", {}).items()},
            texts={int(key): _text(text) for key, text in known.pop("texts", {}).items()},
            struck=tuple(sorted({_whole(each) for each in known.pop("struck", ())})),
            pairs={
                int(key): None if each is None else _whole(each)
                for key, each in known.pop("pairs", {}).items()
            },
            tags=tuple(dict.fromkeys(_words(tag) for tag in known.pop("tags", ()))),
            note=_words(known.pop("note", "")),
            right=known.pop("right", False) is True,
        )
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise InputError(f"no correction ({error})") from error
    if known:
        raise InputError(f"no correction: unknown {', '.join(map(repr, sorted(known)))}")
    return found


def _state_or_none(value: Any) -> State | None:
    return None if value is None else state_of(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"found {value!r}, want a number of a region or sentence")
    return value


def _corners(box: Any) -> Corners:
    values = [float(value) for value in box if type(value) in (int, float)]
    if len(values) != 4 or len(box) != 4 or not all(map(math.isfinite, values)):
        raise ValueError(f"box {box!r}: want four finite numbers")
    return values[0], values[1], values[2], values[3]


def _words(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise ValueError(f"want a text of at most {MOST_TEXT} characters")
    text.encode()  # no half of a character
    return " ".join(text.split())


def _text(text: Any) -> str:
    found = unicodedata.normalize("NFC", _words(text))
    if not any(map(str.isalnum, found)):
        raise ValueError(f"sentence {found!r} has no word; strike it instead")
    return found


def _finite(text: str) -> float:
    raise ValueError(f"{text} is no finite number")


def parse_line(text: str, where: str, dataset: str) -> Line:
    """A line of the file.

    Raises:
        InputError: it is none, or of another dataset or version.
    """
    try:
        values = json.loads(text, parse_constant=_finite)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f"want format {FORMAT!r}")
        if (version := values["schema_version"]) != VERSION:
            raise InputError(f"corrections of version {version!r}; this glit has {VERSION}")
        said: dict[str, Any] = {
            name: values[name] for name in ("dataset", "by", "at", "sample_id", "did")
        }
        if not all(isinstance(each, str) for each in said.values()) or said["did"] not in DEEDS:
            raise ValueError(f"did: want one of {', '.join(DEEDS)}")
        line = Line(**said, state=_state_or_none(values["state"]), where=where)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{where}: not a line of corrections ({error})") from error
    if line.dataset != dataset:
        raise InputError(
            f"{where}: corrections of another dataset, or of this one before it was built again "
            f"(manifest {line.dataset[:12]}, here {dataset[:12]})"
        )
    return line


def read_corrections(file: Path, dataset: str) -> tuple[list[Line], bool, str]:
    """The lines of a file, whether its last one is unfinished and left out, and its SHA-256.

    Args:
        file: of ``glit pairs correct``.
        dataset: SHA-256 of the manifest of the dataset that they are for.

    Raises:
        InputError: the file cannot be read or is empty, or a line is none or is of another dataset.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from error
    end = end_of_lines(data)
    lines = _parsed(data[:end], file, 0, dataset)
    if not lines:
        raise InputError(f"{file}: holds no correction")
    return lines, end < len(data), hashlib.sha256(data).hexdigest()


def _parsed(data: bytes, file: Path, before: int, dataset: str) -> list[Line]:
    """The lines of what a file holds after some lines."""
    return [
        parse_line(line.decode("utf-8", "replace"), f"{file}, line {number}", dataset)
        for number, line in enumerate(data.split(b"\n"), start=before + 1)
        if line.strip()
    ]


class Journal:
    """A file of corrections that this process, and perhaps others, append to. Safe for threads.

    Args:
        file: may be missing yet.
        dataset: SHA-256 of the manifest.
        by: who says what is added here.

    Raises:
        InputError: the file holds something else, or cannot be read.
    """

    def __init__(self, file: Path, dataset: str, *, by: str) -> None:
        self._file, self._dataset, self._by = file, dataset, by
        self._size = self._num_lines = 0
        self._of: dict[str, list[Line]] = {}
        self._mine: list[tuple[str, State | None]] = []
        self._lock = threading.Lock()
        self.cut = False
        """True if the file ended in an unfinished line."""
        if not file.parent.is_dir():
            raise InputError(f"{file}: its folder does not exist")
        self.refresh()

    def __iter__(self) -> Iterator[str]:
        """The samples that something was said of."""
        return iter(self._of)

    @property
    def last(self) -> str | None:
        """The sample of this person's last line that was not undone."""
        return self._mine[-1][0] if self._mine else None

    def of(self, sample_id: str) -> tuple[State | None, int, str]:
        """Return the last state of a sample, the number of its lines, and who wrote the last."""
        lines = self._of.get(sample_id, [])
        return (lines[-1].state, len(lines), lines[-1].by) if lines else (None, 0, "")

    def refresh(self) -> None:
        """Read what others appended.

        Raises:
            InputError: the file cannot be read any more.
        """
        with self._lock:
            if self._file.exists():
                with self._open():
                    pass

    def add(self, sample_id: str, state: State, did: Did, *, seen: int) -> None:
        """Append a line, on disk when this returns.

        Raises:
            InputError: somebody else has changed the sample since ``seen`` lines, or the file
                cannot be written.
        """
        with self._lock, self._open() as stream:
            _, number, by = self.of(sample_id)
            if number != seen:
                raise InputError(f"{by} changed this image meanwhile; what you see now includes it")
            self._write(stream, sample_id, state, did)

    def undo(self, among: Container[str]) -> str:
        """Append the state before this person's last line that was not undone; its sample.

        Raises:
            InputError: there is none, it is of no sample ``among`` these, or somebody else has
                changed that sample since.
        """
        if not self._file.exists():
            raise InputError("nothing is left to undo")
        with self._lock, self._open() as stream:
            if not self._mine:
                raise InputError("nothing is left to undo")
            sample_id, before = self._mine[-1]
            if sample_id not in among:
                raise InputError("the last step is of a sample that --where leaves out")
            if (by := self.of(sample_id)[2]) != self._by:
                raise InputError(f"{by} changed that image since; correct it there")
            self._write(stream, sample_id, before, "undo")
        return sample_id

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        """The file, locked, with what others appended read; without an unfinished line."""
        try:
            with self._file.open("a+b", buffering=0) as stream:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(stream, fcntl.LOCK_EX)
                self._catch_up(stream)
                yield stream
        except OSError as error:
            raise InputError(
                f"{self._file}: cannot be written ({error.strerror or error})"
            ) from error

    def _catch_up(self, stream: IO[bytes]) -> None:
        if stream.seek(0, os.SEEK_END) < self._size:
            raise InputError(f"{self._file}: was cut or replaced meanwhile; start glit again")
        stream.seek(self._size)
        data = stream.read()
        try:
            end = end_of_lines(data, opening=_OPENING)
        except ValueError as error:
            raise InputError(f"{self._file}: {error}") from error
        lines = _parsed(data[:end], self._file, self._num_lines, self._dataset)
        if end < len(data):  # its writer died: the lock is ours
            self.cut = True
            stream.truncate(self._size + end)
        elif data and not data.endswith(b"\n"):
            end += stream.write(b"\n")
        self._num_lines += len(data[:end].splitlines())
        self._size = stream.seek(self._size + end)
        for line in lines:
            self._note(line)

    def _note(self, line: Line) -> None:
        if line.by == self._by and line.did == "undo" and self._mine:
            self._mine.pop()
        elif line.by == self._by:
            self._mine.append((line.sample_id, self.of(line.sample_id)[0]))
        self._of.setdefault(line.sample_id, []).append(line)

    def _write(self, stream: IO[bytes], sample_id: str, state: State | None, did: Did) -> None:
        said = {
            "format": FORMAT, "schema_version": VERSION, "dataset": self._dataset, "by": self._by,
            "at": datetime.now(UTC).isoformat(timespec="seconds"), "sample_id": sample_id,
            "did": did, "state": None if state is None else state.as_json(),
        }  # fmt: skip
        append_line(stream, (json.dumps(said) + "\n").encode())
        stream.seek(self._size)
        self._catch_up(stream)
