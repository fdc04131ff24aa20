"""Assertions of a C2PA manifest store, from its JUMBF boxes. Signatures are not checked here.

A store holds the manifest of the picture, which comes last, and those of the pictures that it was
made of. What any of them forbids, or says of its making, holds for the picture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from glit.inputs.rights.cbor import read_cbor

_MOST_BOXES = 5000
_MOST_DEPTH = 16
_MOST_CONTENT_BYTES = 1 << 20
_MINING = ("c2pa.training-mining", "cawg.training-mining")
"""Assertions on mining and training, by the beginning of their label."""
_USES = ("data_mining", "ai_training", "ai_generative_training", "ai_inference")
"""Entries of these assertions, after the name of whose they are."""
_METADATA = ("stds.iptc", "c2pa.metadata", "cawg.metadata")
_MAKING = ("c2pa.actions", "c2pa.claim")


@dataclass(slots=True)
class Manifest:
    """Contents of a manifest store."""

    uses: list[str] = field(default_factory=list)
    """``allowed``, ``notAllowed`` or ``constrained``, of each use that it names."""
    mining: list[str] = field(default_factory=list)
    """Values of ``plus:DataMining`` in its metadata."""
    source_types: list[str] = field(default_factory=list)
    """Addresses of digital source types."""
    claim_generator: str = ""
    """The program that made the picture's own manifest."""


def read_manifest_store(store: bytes, *, making: bool = True) -> Manifest:
    """Read a manifest store.

    Args:
        store: its JUMBF box.
        making: whether to read what it says of how and by what the picture was made, too.

    Raises:
        ValueError: it is damaged, compressed, or beyond the limits.
    """
    found, wanted = Manifest(), (*_MINING, *_METADATA, *(_MAKING if making else ()))
    for label, kind, content in _contents(memoryview(store), "", 0, [_MOST_BOXES]):
        if kind == b"brob":
            raise ValueError("C2PA: a compressed manifest")
        if not label.startswith(wanted) or kind not in (b"cbor", b"json"):
            continue
        if len(content) > _MOST_CONTENT_BYTES:
            raise ValueError(f"C2PA: {label} of {len(content)} bytes")
        try:
            value = read_cbor(bytes(content)) if kind == b"cbor" else json.loads(bytes(content))
        except RecursionError as error:
            raise ValueError(f"C2PA: {label} is too deep") from error
        if isinstance(value, dict):
            _take(label, value, found)
    return found


def _take(label: str, value: dict[Any, Any], found: Manifest) -> None:
    """Add what an assertion or a claim says."""
    if label.startswith(_MINING):
        entries = value.get("entries")
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if str(name).rpartition(".")[2] in _USES and isinstance(entry, dict):
                found.uses.append(str(entry.get("use", "")))
    elif label.startswith("c2pa.actions"):
        actions = value.get("actions")
        for action in actions if isinstance(actions, list) else ():
            if isinstance(action, dict) and isinstance(action.get("digitalSourceType"), str):
                found.source_types.append(action["digitalSourceType"])
    elif label.startswith("c2pa.claim"):
        info = value.get("claim_generator_info")
        info = info[0] if isinstance(info, list) and info else info
        name = info.get("name") if isinstance(info, dict) else None
        found.claim_generator = str(name or value.get("claim_generator") or "")
    else:
        if isinstance(said := value.get("plus:DataMining"), str):
            found.mining.append(said)
        said = value.get(
            "Iptc4xmpExt:DigitalSourceType", value.get("Iptc4xmpExt:digitalsourcetype")
        )
        if isinstance(said, str):
            found.source_types.append(said)


def _contents(
    data: memoryview, label: str, depth: int, left: list[int]
) -> Iterator[tuple[str, bytes, memoryview]]:
    """Yield the label, the type and the content of all boxes that hold no others (ISO 19566-5).

    Raises:
        ValueError: a box reaches beyond the one around it, or there are too many.
    """
    at = 0
    while at + 8 <= len(data):
        left[0] -= 1
        length, kind = int.from_bytes(data[at : at + 4]), bytes(data[at + 4 : at + 8])
        start = at + 8
        if length == 1:
            length, start = int.from_bytes(data[start : start + 8]), start + 8
        end = at + length if length else len(data)
        if end < start or end > len(data) or depth > _MOST_DEPTH or left[0] < 0:
            raise ValueError("JUMBF: boxes are damaged, too deep or too many")
        body = data[start:end]
        if kind == b"jumb":
            yield from _contents(body, "", depth + 1, left)
        elif kind == b"jumd":
            if len(body) > 17 and body[16] & 2:
                label = bytes(body[17:273]).partition(b"\0")[0].decode("utf-8", "replace")
        else:
            yield label, kind, body
        at = end
