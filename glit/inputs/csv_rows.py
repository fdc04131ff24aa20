"""Read a user's CSV strictly: an uncertain row is an error, never a shorter text."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from glit.errors import InputError, cut
from glit.images import IMAGE_SUFFIXES

_DELIMITERS = (",", ";", "\t")
_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "'|'"}
_EXCEL = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)
"""A line before the header by which Excel takes a separator."""
_NEXT_ROW = re.compile(
    rf"^[^\n]{{0,400}}(?:{'|'.join(map(re.escape, sorted(IMAGE_SUFFIXES)))})\"?[,;\t|](?! )",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a line inside a quoted field whose quote was meant to end before it. Prose has a blank
after its comma."""


def csv_rows(
    stream: TextIO, file: str, *, is_known: Callable[[str], bool]
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file and their numbers; the header is row 1.

    Fields are separated by commas, semicolons or tabs, as the header says, or by what Excel's line
    ``sep=;`` before the header names.

    Args:
        stream: opened with ``newline=""``.
        file: what people call it.
        is_known: whether a column of this name is read; tells which separator the header has.

    Raises:
        InputError: a row has another number of fields than the header, a quote is left open, a
            column is there twice, or the text is no CSV in UTF-8.
    """
    number = 1
    try:
        first = stream.readline()
        named = _EXCEL.fullmatch(first)
        header_line = stream.readline() if named else first
        delimiter, spaced = _dialect(header_line, is_known, named[1] if named else _DELIMITERS)
        stream.seek(0)
        if named:
            stream.readline()
        reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=spaced)
        header = [name.strip() for name in _next_row(reader) or ()]
        twice = [name for name, count in Counter(header).items() if name and count > 1]
        if twice:
            raise InputError(f"{file}: has two columns {twice[0]!r}; leave one of them")
        while (row := _next_row(reader)) is not None:
            if row:
                number += 1
                _check(row, header, f"{file}: row {number}", delimiter)
                yield number, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise InputError(
            f"{file}: not valid CSV after row {number} ({error}); is a quote left open?"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: not valid CSV in UTF-8 ({error}); save it as CSV UTF-8"
        ) from error


def _dialect(
    header: str, is_known: Callable[[str], bool], delimiters: Sequence[str]
) -> tuple[str, bool]:
    """The separator by which most names of a header are known, and whether a space follows it."""

    def names(delimiter: str) -> list[str]:
        return next(csv.reader([header], delimiter=delimiter), [])

    def known(delimiter: str) -> int:
        return sum(is_known(name.strip().strip('"').lower()) for name in names(delimiter))

    best = max(delimiters, key=known)  # of equal ones the first
    return best, any(name.startswith(" ") for name in names(best))


def lower_case_note(found: Iterable[str], wanted: Iterable[str]) -> str:
    """Return a hint for an error about a missing column: empty unless one has the name in capitals.

    >>> lower_case_note(["Path"], ["path"]), lower_case_note(["where"], ["path"])
    (' (lower case)', '')
    """
    return " (lower case)" if {name.strip().lower() for name in found} & set(wanted) else ""


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """With fields of any length, where Python's csv refuses those over 131,072 characters; for one
    row alone, as the limit is the whole process's."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _check(row: list[str], header: list[str], at: str, delimiter: str) -> None:
    """Raise InputError for a row that may have lost text."""
    if len(row) != len(header):
        raise InputError(
            f"{at} has {len(row)} fields, the header has {len(header)}; put a text that holds "
            f"{_NAMES[delimiter]} or a line break in double quotes ({cut(repr(row), 120)})"
        )
    for field in row:
        if "\0" in field:
            raise InputError(f"{at} holds a NUL byte; write the file anew in UTF-8")
        if "\n" in field or "\r" in field:
            lines = field.replace("\r\n", "\n").replace("\r", "\n").split("\n", 1)[1]
            if found := _NEXT_ROW.search(lines):
                raise InputError(
                    f"{at} takes in the row that begins with {cut(found[0], 80)!r}; is a quote "
                    "left open?"
                )
