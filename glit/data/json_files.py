"""Read JSON files of other programs: a whole file, JSON lines, or a large array in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

MOST_JSON = 1 << 32
"""Bytes of a file of JSON that is read whole; the largest published one has a quarter."""

MOST_ENTRY = 1 << 28
"""Characters of an entry of a JSON array, and of a line."""

CHUNK = 1 << 20
"""Characters of a JSON array read at once."""


def load_json(path: Path, *, most: int = MOST_JSON) -> Any:
    """The value of a file of JSON of at most so many bytes."""
    return parse_json(read_text(path, most=most))


def read_text(path: Path, *, most: int) -> str:
    """The text of a file in UTF-8 of at most so many bytes.

    Raises:
        ValueError: it is larger, or in another encoding.
    """
    if (size := path.stat().st_size) > most:
        raise ValueError(f"{path.name}: {size:,} bytes, want at most {most:,}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: {not_utf8(error)}") from error


def not_utf8(error: UnicodeDecodeError) -> str:
    """Describe a text in another encoding, for people."""
    return f"byte {error.start} is not of a text in UTF-8; save the file as UTF-8"


def parse_json(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: it is no JSON, or too deep.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Entries of a file with one JSON value a line."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(iter(partial(file.readline, MOST_ENTRY + 1), ""), start=1):
            if len(line) > MOST_ENTRY:
                raise ValueError(f"line {number}: more than {MOST_ENTRY:,} characters")
            if line.strip():
                try:
                    yield parse_json(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error


def json_array(path: Path) -> Iterator[Any]:
    """Entries of a file that is one JSON array of objects, read in parts as they are taken.

    ShareGPT4V's captions are one array of 1.2 million entries; its first thousand are in the first
    megabytes. Raises ValueError where the text is not such an array.
    """
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8-sig") as file:
        text, at = "", 0

        def upcoming() -> str:
            """The next character that is not white space, ``text[at]``; "" at the end."""
            nonlocal text, at
            while True:
                while at < len(text) and text[at] in " \t\r\n":
                    at += 1
                if at < len(text):
                    return text[at]
                text, at = file.read(CHUNK), 0
                if not text:
                    return ""

        if upcoming() != "[":
            raise ValueError("wanted a JSON array")
        at += 1
        if upcoming() == "]":
            return
        while True:
            upcoming()
            try:
                entry, at = decoder.raw_decode(text, at)
            except RecursionError as error:
                raise ValueError("an entry is nested too deep") from error
            except json.JSONDecodeError:  # cut off, unless nothing follows
                more = file.read(max(CHUNK, len(text) - at))
                if not more:
                    raise
                if len(text) - at > MOST_ENTRY:
                    raise ValueError(f"an entry of more than {MOST_ENTRY:,} characters") from None
                text, at = text[at:] + more, 0
                continue
            yield entry
            mark = upcoming()
            if mark == "]":
                at += 1
                if more := upcoming():
                    raise ValueError(f"wanted the end after the array, found {more!r}")
                return
            if mark != ",":
                raise ValueError(f"wanted , or ] after an entry, found {mark!r}")
            at += 1
