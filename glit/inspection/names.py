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
"""Of a name, in most file systems."""


def name_fault(path: str) -> str:
    """Return why a path is unsafe; empty for a safe one.

    >>> name_fault("a/../../b.jpg"), name_fault("/etc/x.png"), name_fault("a/con.jpg")
    ("has '..'", 'is absolute', "has 'con.jpg', which Windows reserves")
    >>> name_fault("train.tar::a/b.jpg")
    ''
    """
    path = path.replace("::", "/")
    if not path.strip():
        return "is empty"
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        return "is absolute"
    if not is_utf8(path):
        return "is no valid Unicode"
    for part in path.split("/"):
        if fault := _part_fault(part):
            return fault
    return ""


def _part_fault(part: str) -> str:
    if part == "..":
        return "has '..'"
    if any(unicodedata.category(sign) == "Cc" for sign in part):
        return "has a control character"
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
