"""All that a picture says of the rights in it, as one record; of several statements the strictest.

A text is taken from the first place that has it: XMP, IPTC-IIM, EXIF, PNG's own texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from glit.images.iim import BYLINE, COPYRIGHT, CREDIT, as_text, read_iim
from glit.images.packets import Packets, find_packets
from glit.images.tiff_tags import ARTIST, first_directory
from glit.images.tiff_tags import COPYRIGHT as COPYRIGHT_TAG
from glit.inputs.rights.c2pa import Manifest, read_manifest_store
from glit.inputs.rights.xmp import read_xmp

MINING = ("prohibited", "constrained", "allowed")
"""What may be said of data mining and of training, strictest first."""
C2PA = ("none", "present", "valid", "invalid")
"""What is known of a C2PA manifest; ``present`` where its signature was not checked."""
RIGHTS = pa.struct(
    [
        *((name, pa.string()) for name in ("copyright", "creator", "credit", "licence", "mining")),
        ("ai_generated", pa.bool_()),
        *((n, pa.string()) for n in ("digital_source_type", "c2pa", "claim_generator", "signer")),
        ("sources", pa.list_(pa.struct([("field", pa.string()), ("source", pa.string())]))),
        ("unreadable", pa.list_(pa.string())),
    ]
)
"""The column ``rights`` of a dataset."""
_DC, _RIGHTS = "http://purl.org/dc/elements/1.1/", "http://ns.adobe.com/xap/1.0/rights/"
_PLUS = (
    "http://ns.useplus.org/ldf/xmp/1.0/ DataMining",
    "http://ns.useplus.org/LDF/1.0/ DataMining",
)
_EXT = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
_CC, _MARKED = "http://creativecommons.org/ns# license", f"{_RIGHTS} Marked"
_SOURCE_TYPE = f"{_EXT} DigitalSourceType"
_AI_SYSTEM = (f"{_EXT} AISystemUsed", f"{_EXT} AIPromptInformation")
_TEXTS = {
    "copyright": (f"{_DC} rights",),
    "creator": (f"{_DC} creator",),
    "credit": ("http://ns.adobe.com/photoshop/1.0/ Credit",),
    "licence": (_CC, f"{_RIGHTS} WebStatement", f"{_RIGHTS} UsageTerms"),
}
_ONE_VALUE = ("copyright", "licence")
"""Fields of which XMP's values are one text in several languages."""
_WANTED = {*_PLUS, *_AI_SYSTEM, _MARKED, _SOURCE_TYPE, *(n for t in _TEXTS.values() for n in t)}
_BY_AI = {"trainedalgorithmicmedia", "compositewithtrainedalgorithmicmedia",
          "trainedalgorithmicdata"}  # fmt: skip
"""Digital source types of pictures that a trained model made, in part at least; lower case."""
_USES = {"notAllowed": "prohibited", "constrained": "constrained", "allowed": "allowed"}
_TAGS = {COPYRIGHT_TAG: "copyright", ARTIST: "creator"}
_DATASETS = {COPYRIGHT: "copyright", BYLINE: "creator", CREDIT: "credit"}
_MOST_TAG_BYTES = 16 << 10
_MOST_CHARACTERS = 2000
"""Longest text; the rest is cut."""


@dataclass(slots=True)
class Rights:
    """The rights in a picture; None or empty where nothing is said."""

    copyright: str | None = None
    """The copyright notice."""
    creator: str | None = None
    """Creator, by-line or artist."""
    credit: str | None = None
    """The credit line."""
    licence: str | None = None
    """Address of a licence or of a web statement of rights; else the usage terms."""
    mining: str | None = None
    """One of :data:`MINING`."""
    ai_generated: bool | None = None
    """True if a trained model made it, in part at least; false if its digital source type is
    another."""
    digital_source_type: str | None = None
    """Name in IPTC's vocabulary: ``trainedAlgorithmicMedia``, ``digitalCapture``."""
    c2pa: str = "none"
    """One of :data:`C2PA`."""
    claim_generator: str | None = None
    """The program that made the C2PA manifest."""
    signer: str | None = None
    """Who signed it, if the signature was checked."""
    sources: dict[str, str] = field(default_factory=dict)
    """By field: ``xmp``, ``iim``, ``exif``, ``png``, ``c2pa``, or the name of a user's file."""
    unreadable: set[str] = field(default_factory=set)
    """Blocks of metadata that are there and cannot be read: ``xmp``, ``iim``, ``exif``, ``c2pa``,
    or the ``container`` around them."""

    def say(self, name: str, value: str | bool | None, source: str) -> None:
        """Take a statement, unless the field has one; of ``mining`` the stricter one stays."""
        known = getattr(self, name)
        if value is None or value == "":
            return
        if isinstance(value, str):  # JSON may hold halves of characters
            value = value[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()
        stricter = name == "mining" and known and MINING.index(str(value)) < MINING.index(known)
        if known is None or stricter or (name == "ai_generated" and value and not known):
            setattr(self, name, value)
            self.sources[name] = source

    def as_row(self) -> dict[str, Any]:
        """The value of the column ``rights``."""
        sources = [{"field": key, "source": value} for key, value in sorted(self.sources.items())]
        row = {name: getattr(self, name) for name in RIGHTS.names}
        return {**row, "sources": sources, "unreadable": sorted(self.unreadable)}


def is_rights(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of the column ``rights``, or of some of its fields."""
    known = {each.name: each.type for each in RIGHTS}
    return pa.types.is_struct(kind) and all(known.get(f.name) == f.type for f in kind)


def read_rights(data: bytes) -> Rights:
    """Read what an encoded picture says of its rights; no file raises an exception."""
    packets, found = find_packets(data), Rights()
    found.unreadable = packets.unreadable
    for name, read in (("xmp", _xmp), ("iim", _iim), ("exif", _exif), ("c2pa", _c2pa)):
        if getattr(packets, name):
            try:
                read(packets, found)
            except ValueError:
                found.unreadable.add(name)
    for name, text in packets.texts.items():
        found.say(name, text, "png")
    return found


def mining_of(data: bytes) -> str:
    """One of :data:`MINING`, ``unstated`` or ``unreadable``: what an encoded picture says of data
    mining and training, by XMP and C2PA.

    Some microseconds for a picture whose metadata has no word on it.
    """
    packets, found = find_packets(data), Rights()
    unreadable = bool(packets.unreadable & {"xmp", "c2pa", "container"})
    xmp = packets.xmp + packets.xmp_more
    for packet, read in ((xmp, _xmp_mining), (packets.c2pa, _c2pa_mining)):
        if any(mark in packet for mark in _MARKS):
            try:
                read(packets, found)
            except ValueError:
                unreadable = True
    return found.mining or ("unreadable" if unreadable else "unstated")


_MARKS = (b"DataMining", b"D\0a\0t\0a\0M\0i\0n\0i\0n\0g", b"training-mining", b"brob")
"""Bytes of which a packet has one that says anything on mining, in UTF-8 or UTF-16; the last marks
a compressed manifest."""


def _xmp_mining(packets: Packets, found: Rights) -> None:
    for packet in filter(None, (packets.xmp, packets.xmp_more)):
        said = read_xmp(packet, _PLUS)
        found.say("mining", _of_plus(itertools.chain(*said.values())), "xmp")


def _c2pa_mining(packets: Packets, found: Rights) -> None:
    found.say("mining", _mining_in(read_manifest_store(packets.c2pa, making=False)), "c2pa")


def _mining_in(said: Manifest) -> str | None:
    return _strictest([*(_USES.get(use) for use in said.uses), _of_plus(said.mining)])


def _xmp(packets: Packets, found: Rights) -> None:
    for packet in filter(None, (packets.xmp, packets.xmp_more)):
        _say_xmp(read_xmp(packet, _WANTED), found)


def _say_xmp(said: dict[str, list[str]], found: Rights) -> None:
    for name, properties in _TEXTS.items():
        for values in filter(None, map(said.get, properties)):
            found.say(name, values[0] if name in _ONE_VALUE else "; ".join(values), "xmp")
    if said.get(_MARKED) == ["False"]:
        found.say("licence", "public domain", "xmp")
    found.say("mining", _of_plus(v for name in _PLUS for v in said.get(name, ())), "xmp")
    _say_source_type(said.get(_SOURCE_TYPE, ()), found, "xmp")
    if any(map(said.get, _AI_SYSTEM)):
        found.say("ai_generated", True, "xmp")


def _iim(packets: Packets, found: Rights) -> None:
    for key, values in read_iim(packets.iim).items():
        if key in _DATASETS:
            found.say(_DATASETS[key], "; ".join(values), "iim")


def _exif(packets: Packets, found: Rights) -> None:
    for tag, value in first_directory(packets.exif, _TAGS, most=_MOST_TAG_BYTES).items():
        # photographer and editor, with a zero between them
        notices = [as_text(part) for part in value.split(b"\0")]
        found.say(_TAGS[tag], "; ".join(filter(None, notices)), "exif")


def _c2pa(packets: Packets, found: Rights) -> None:
    found.c2pa = "present"
    said = read_manifest_store(packets.c2pa)
    found.say("mining", _mining_in(said), "c2pa")
    found.say("claim_generator", said.claim_generator, "c2pa")
    _say_source_type(said.source_types, found, "c2pa")


def _say_source_type(addresses: Iterable[str], found: Rights, source: str) -> None:
    """Take a digital source type; of several, one of a trained model."""
    names = [address.rstrip("/").rpartition("/")[2] for address in addresses]
    by_ai = [name for name in names if name.lower() in _BY_AI]
    for name in [*by_ai, *reversed(names)][:1]:
        if by_ai and not found.ai_generated:
            found.digital_source_type = None
        found.say("digital_source_type", name, source)
        found.say("ai_generated", bool(by_ai), source)


def _of_plus(values: Iterable[str]) -> str | None:
    """The strictest of values of ``plus:DataMining``, addresses or names.

    Each prohibition counts, those with an exception for search engines or with constraints too.
    """
    names = [value.upper() for value in values]
    kinds = {"DMI-PROHIBITED": "prohibited", "DMI-ALLOWED": "allowed"}
    return _strictest(kind for name in names for key, kind in kinds.items() if key in name)


def _strictest(said: Iterable[str | None]) -> str | None:
    return min(filter(None, said), key=MINING.index, default=None)
