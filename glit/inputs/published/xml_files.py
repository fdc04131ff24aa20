"""Read XML of a stranger's in parts: no document type, no entity, nothing too deep or too large."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

_PIECE = 1 << 20
_MOST_DEPTH = 100
_MOST_ELEMENTS = 1 << 20
"""Elements of one entry."""
_MOST_CHARACTERS = 1 << 26
"""Characters of one entry."""
_MOST_TAG = 1 << 24
"""Bytes of one tag; the parser begins a tag anew with every piece of it."""
_MOST_TEXT = 1 << 20
"""Characters between the tags of one element."""


def xml_entries(path: Path, tag: str) -> Iterator[ET.Element]:
    """Yield the elements of a name, one after the other, each as a whole; what is around them is
    read past.

    Raises:
        ValueError: the XML is not well-formed, declares a document type, or an entry is too deep
            or too large.
    """
    reader = _Reader(tag)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    fed = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                parser.Parse(piece, False)
                fed += len(piece)
                if fed - parser.CurrentByteIndex > _MOST_TAG:
                    raise ValueError(f"a tag of more than {_MOST_TAG:,} bytes")
                yield from reader.taken()
            parser.Parse(b"", True)
        yield from reader.taken()
    except (expat.ExpatError, LookupError) as error:  # of syntax, or of an unknown encoding
        raise ValueError(f"{path.name}: no XML ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def xml_root(path: Path, tag: str, *, most: int = 1 << 24) -> ET.Element:
    """The one element of a name in a small file.

    Raises:
        ValueError: the file is larger than ``most`` bytes, has none or several, or see
            :func:`xml_entries`.
    """
    if (size := path.stat().st_size) > most:
        raise ValueError(f"{path.name}: {size:,} bytes, want at most {most:,}")
    found = list(xml_entries(path, tag))
    if len(found) != 1:
        raise ValueError(f"{path.name}: {len(found)} elements <{tag}>, want one")
    return found[0]


def element_text(element: ET.Element, path: str) -> str:
    """The text of an element below another.

    Raises:
        ValueError: there is no such element.
    """
    found = element.findtext(path)
    if found is None:
        raise ValueError(f"no <{path}> in <{element.tag}>")
    return found


def _refuse(*_: object) -> None:
    raise ValueError("declares a document type, which may hold entities")


class _Reader:
    """Builds the elements of one name."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._path: list[ET.Element | None] = []
        self._found: list[ET.Element] = []
        self._elements = self._characters = 0

    def taken(self) -> list[ET.Element]:
        """The entries that are whole since the last call."""
        found, self._found = self._found, []
        return found

    def start(self, name: str, attributes: dict[str, str]) -> None:
        above = self._path[-1] if self._path else None
        element = None
        if above is not None:
            element = ET.SubElement(above, name, attributes)
        elif name == self._tag:
            element = ET.Element(name, attributes)
            self._elements = self._characters = 0
        self._path.append(element)
        self._elements += 1
        self._count(sum(map(len, attributes.values())))
        if len(self._path) > _MOST_DEPTH or (
            element is not None and self._elements > _MOST_ELEMENTS
        ):
            raise ValueError(f"too deep, or too many elements in one <{self._tag}>")

    def end(self, _: str) -> None:
        element = self._path.pop()
        if element is not None and not (self._path and self._path[-1] is not None):
            self._found.append(element)

    def text(self, text: str) -> None:
        element = self._path[-1] if self._path else None
        if element is None or len(element):  # what stands between elements is white space
            return
        self._count(len(text))
        element.text = (element.text or "") + text
        if len(element.text) > _MOST_TEXT:
            raise ValueError(f"more than {_MOST_TEXT:,} characters in a <{element.tag}>")

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._path and self._path[-1] is not None and self._characters > _MOST_CHARACTERS:
            raise ValueError(f"more than {_MOST_CHARACTERS:,} characters in one <{self._tag}>")
