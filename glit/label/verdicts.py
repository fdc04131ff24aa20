"""Read and append verdicts: a JSON Lines file with one line per answer."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from glit.errors import InputError, cut
from glit.plain import from_plain, limited

_LONGEST_LINE = 1 << 16
_OPENING = '{"sample_id"'
"""The beginning of a line; another last line is not glit's to remove."""

Verdict = Literal["right", "wrong", "none", "false"]
"""``right``: the sentence tells of the region. ``wrong``: it tells of something elsewhere in the
image. ``none``: it is true, but tells of nothing that a box could hold. ``false``: it is not true
of the image."""
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """A pair and its verdict."""

    sample_id: str
    sentence: int = limited(least=0, below=1 << 31)
    """Index into the sample's sentences."""
    region: int = limited(least=0, below=1 << 31)
    """Index into the sample's regions: the one that was shown."""
    verdict: Verdict

    @property
    def key(self) -> tuple[str, int]:
        """The key of the sentence; a later verdict replaces an earlier one with the same key."""
        return self.sample_id, self.sentence


def read_verdicts(file: Path) -> dict[tuple[str, int], JudgedPair]:
    """Read the last verdict on every sentence; empty if the file does not exist.

    A last line that was not finished, as after a full disk, is no verdict.

    Raises:
        InputError: another line is not a verdict.
    """
    found: dict[tuple[str, int], JudgedPair] = {}
    if not file.exists():
        return found
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from error
    *lines, last = text.split("\n")
    if _is_verdict(last) or not (last.startswith(_OPENING) or _OPENING.startswith(last)):
        lines.append(last)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            labelled = _parsed(line, f"{file}, line {number}")
            found[labelled.key] = labelled
    return found


def add_verdict(file: Path, labelled: JudgedPair) -> None:
    """Append a line, on disk when this returns; of one that cannot be written nothing is left.

    Raises:
        InputError: the file cannot be written.
    """
    line = (json.dumps(asdict(labelled)) + "\n").encode()
    try:
        with file.open("a+b", buffering=0) as stream:
            before = _end_of_lines(stream)
            try:
                written = 0
                while written < len(line):
                    written += stream.write(line[written:]) or 0
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(before)
                raise
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror or error})") from error


def _end_of_lines(stream: io.FileIO) -> int:
    """The size of a file whose last line is finished, or has been removed if it was none."""
    size = stream.seek(0, os.SEEK_END)
    start = max(0, size - _LONGEST_LINE)
    stream.seek(start)
    tail = stream.read(size - start) or b""
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last:
        return size
    if _is_verdict(last.decode("utf-8", "replace")):
        stream.write(b"\n")
        return size + 1
    size -= len(last)
    stream.truncate(size)
    return size


def _is_verdict(line: str) -> bool:
    try:
        _parsed(line, "")
    except InputError:
        return False
    return True


def _parsed(line: str, where: str) -> JudgedPair:
    try:
        return from_plain(JudgedPair, json.loads(line))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a verdict on a pair ({cut(str(error))})") from error
