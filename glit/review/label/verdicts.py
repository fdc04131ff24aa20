"""Read and append verdicts: a JSON Lines file with one line per answer."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from glit.errors import InputError
from glit.plain import limited
from glit.verdicts.lines import appending, end_of_lines, line_of, parsed

_OPENING = b'{"sample_id"'
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
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
        end = end_of_lines(data, opening=_OPENING)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from error
    for number, line in enumerate(data[:end].split(b"\n"), start=1):
        if line.strip():
            try:
                pair = parsed(line, JudgedPair)
            except ValueError as error:
                raise InputError(
                    f"{file}, line {number}: not a verdict on a pair ({error})"
                ) from error
            found[pair.key] = pair
    return found


def add_verdict(file: Path, pair: JudgedPair) -> None:
    """Append a line, on disk when this returns; of one that cannot be written nothing is left.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        file.touch()
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror or error})") from error
    with appending(file, opening=_OPENING) as append:
        append(line_of(pair))
