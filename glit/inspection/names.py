"""Check file names: where they lead, and whether every system can store them."""

from __future__ import annotations

import re
import unicodedata

from glit.storage.members import is_utf8

_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))]
)
"""Names that Windows keeps for devices, with any suffix."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_FORBIDDEN = re.compile(r'[<>:"|?*\\]')
_MOST_BYTES = 255
"""Longest name in most file systems."""


def name_fault(path: str) -> tuple[str, str] | None:
    """Return the code of a path's fault, and the fault; None for a good path.

    >>> name_fault("a/../../b.jpg"), name_fault("/etc/x.png")
    (('name-unsafe', "has '..'"), ('name-unsafe', 'is absolute'))
    >>> name_fault("train.tar::a/con.jpg")
    ('name-unportable', "has 'con.jpg', which Windows reserves")
    """
    path = path.replace("::", "/")
    parts = path.split("/")
    if fault := _unsafe(path, parts):
        return "name-unsafe", fault
    fault = next(filter(None, map(_unportable, parts)), "")
    return ("name-unportable", fault) if fault else None


def _unsafe(path: str, parts: list[str]) -> str:
    if not path.strip():
        return "is empty"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if not is_utf8(path):
        return "is no valid Unicode"
    if ".." in parts or ".." in path.split("\\"):
        return "has '..'"
    is_control = any(unicodedata.category(sign) == "Cc" for sign in path)
    return "has a control character" if is_control else ""


def _unportable(part: str) -> str:
    if found := _FORBIDDEN.search(part):
        return f"has {found[0]!r}, which not every system can store"
    if part.partition(".")[0].lower() in _RESERVED:
        return f"has {part!r}, which Windows reserves"
    if part != part.strip() or (part.endswith(".") and part != "."):
        return "begins or ends with a space, or ends with a dot"
    if len(part.encode()) > _MOST_BYTES:
        return f"has a part of more than {_MOST_BYTES} bytes"
    return ""


def folded(path: str) -> str:
    """The path as a system sees it that ignores case and Unicode forms.

    >>> folded("A/Cafe\\u0301.JPG") == folded("a/Caf\\u00e9.jpg")
    True
    """
    return unicodedata.normalize("NFC", path).casefold()
