"""Read and append verdicts: a JSON Lines file with one line per answer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from glit.errors import InputError

Verdict = Literal["right", "wrong", "none", "false"]
"""``right``: the sentence tells of the region. ``wrong``: it tells of something elsewhere in the
image. ``none``: it is true, but tells of nothing that a box could hold. ``false``: it is not true
of the image."""
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A pair and its verdict."""

    sample_id: str
    sentence: int
    """Index into the sample's sentences."""
    region: int
    """Index into the sample's regions: the one that was shown."""
    verdict: Verdict

    @property
    def key(self) -> tuple[str, int]:
        """The key of the sentence; a later verdict replaces an earlier one with the same key."""
        return self.sample_id, self.sentence


def read_verdicts(file: Path) -> dict[tuple[str, int], Labelled]:
    """Read the last verdict on every sentence; empty if the file does not exist.

    Raises:
        InputError: a line is not one.
    """
    found: dict[tuple[str, int], Labelled] = {}
    if not file.exists():
        return found
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            labelled = _parsed(line, f"{file}, line {number}")
            found[labelled.key] = labelled
    return found


def add_verdict(file: Path, labelled: Labelled) -> None:
    """Append a line.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(labelled)) + "\n")
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror or error})") from error


def _parsed(line: str, where: str) -> Labelled:
    try:
        values: dict[str, Any] = json.loads(line)
        found = Labelled(**values)
        numbers = (found.sentence, found.region)
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: not a verdict on a pair ({error})") from error
    if found.verdict not in VERDICTS or not all(type(n) is int and n >= 0 for n in numbers):
        raise InputError(f"{where}: want a verdict of {', '.join(VERDICTS)} on two numbers")
    return found
