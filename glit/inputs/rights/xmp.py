"""Properties of an XMP packet, by expat: no document type, no entity, no depth beyond a limit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from xml.parsers import expat

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
_RESOURCE = f"{RDF} resource"
_MOST_DEPTH = 100
_MOST_ELEMENTS = 200_000
_MOST_CHARACTERS = 2000
"""Longest value; the rest is cut."""
_MOST_VALUES = 20


def read_xmp(packet: bytes, wanted: Collection[str]) -> dict[str, list[str]]:
    """Values of wanted properties that describe the picture itself, not its ingredients.

    Args:
        packet: the XML.
        wanted: names of properties: the address of their namespace, a space, the local name.

    Returns:
        By name the values of an array, or the one value; of a text in several languages the
        default one.

    Raises:
        ValueError: the XML is not well-formed, is too deep, or declares a document type.
    """
    reader = _Reader(frozenset(wanted))
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    plain = packet.rstrip(b"\0")
    if packet.startswith(b"\xff\xfe"):  # UTF-16, whose last character ends with a zero
        plain += bytes(len(plain) % 2)
    try:
        parser.Parse(plain, True)
    except (expat.ExpatError, LookupError) as error:  # of syntax, or of an unknown encoding
        raise ValueError(f"XMP: {error}") from error
    return {name: values for name, values in reader.found.items() if values}


def _refuse(*_: Any) -> None:
    raise ValueError("XMP: it declares a document type")


class _Reader:
    """Keeps wanted properties of the descriptions right below ``rdf:RDF``."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.found: dict[str, list[str]] = {}
        self._wanted = wanted
        self._left = _MOST_ELEMENTS
        self._path: list[str] = []
        self._at = 0
        """Nesting depth inside the property that is being read; 0 outside of one."""
        self._text: list[str] = []
        self._is_default = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        self._left -= 1
        if len(self._path) > _MOST_DEPTH or self._left < 0:
            raise ValueError("XMP: too deep, or too many elements")
        if self._path[-2:] == [f"{RDF} RDF", f"{RDF} Description"] and not self._at:
            for key, value in attributes.items():
                if key in self._wanted:
                    self._keep(key, value)
        elif self._path[-3:-1] == [f"{RDF} RDF", f"{RDF} Description"] and name in self._wanted:
            self._at = len(self._path)
        if self._at:
            self._text = []
            self._is_default = attributes.get(_LANGUAGE, "").lower() == "x-default"
            if address := attributes.get(_RESOURCE):
                self._keep(self._path[self._at - 1], address)

    def text(self, text: str) -> None:
        if self._at and sum(map(len, self._text)) < _MOST_CHARACTERS:
            self._text.append(text)

    def end(self, _: str) -> None:
        if self._at:
            self._keep(self._path[self._at - 1], "".join(self._text), first=self._is_default)
            self._text, self._is_default = [], False
            if len(self._path) == self._at:
                self._at = 0
        self._path.pop()

    def _keep(self, name: str, value: str, *, first: bool = False) -> None:
        value = value.strip()[:_MOST_CHARACTERS]
        values = self.found.setdefault(name, [])
        if value and len(values) < _MOST_VALUES:
            values.insert(0 if first else len(values), value)
