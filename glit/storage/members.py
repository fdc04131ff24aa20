"""Names of images inside WebDataset tars, ZIP archives and Parquet files.

Nothing is unpacked to a disk: a member of an archive is a range of its bytes, an image of a table
lies in a row group. A member is called ``SHARD::MEMBER``, with ``SHARD`` relative to the root.
"""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

MARK: Final = "::"
SUFFIXES: Final = (".tar", ".zip", ".parquet")
_LIKE_ESCAPED = re.compile(r"\\(?=x[0-9a-f]{2})")

BAD_NAME: Final = -2
DAMAGED: Final = -3
ESCAPES: Final = -4
NO_FILE: Final = -5
PACKED: Final = -6
LOCKED: Final = -7
REFUSED: dict[int, tuple[str, str]] = {
    BAD_NAME: ("bad_name", "rename the file to valid UTF-8"),
    DAMAGED: (
        "unreadable",
        "the shard is damaged or cut short here, what lies behind is lost; fetch it again",
    ),
    ESCAPES: ("bad_name", "the member's name leads out of its archive"),
    NO_FILE: ("unreadable", "a link or a sparse file in an archive, which is not followed"),
    PACKED: (
        "too_large",
        "unpacks to more than 1 GB, or to 200 times its bytes; no picture does",
    ),
    LOCKED: (
        "unreadable",
        "encrypted, or packed in another way than deflate; pack the archive again",
    ),
}
"""Reason and message of a drop, by the size that a listing has for what is refused."""


def is_utf8(name: str) -> bool:
    """Return whether a name is valid UTF-8 and can be stored."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escaped(name: str) -> str:
    r"""Encode a name that is not valid UTF-8 as unique text.

    >>> print(escaped("a\udcff.png"), escaped("a\\xff\udcff.png"))
    a\xff.png a\x5cxff\xff.png
    """
    plain = _LIKE_ESCAPED.sub(r"\\x5c", name)
    return os.fsencode(plain).decode("utf-8", "backslashreplace")


def spelt_on_disk(root: str | os.PathLike[str], path: str) -> str:
    """A path below a folder as the disk spells it, should it differ in Unicode's normal form alone.

    macOS writes ``é`` as two characters, a caption file as one. A path that is not there stays.
    """
    if path.isascii() or os.path.lexists(os.path.join(root, path)):
        return path
    found = ""
    for part in path.split("/"):
        forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
        there = (each for each in forms if os.path.lexists(os.path.join(root, found, each)))
        if (name := next(there, None)) is None:
            return path
        found = posixpath.join(found, name)
    return found


def is_shard(path: str) -> bool:
    """Return whether a file name is that of a shard."""
    return path.lower().endswith(SUFFIXES)


_SYSTEM = frozenset(
    ("@eadir", "@recycle", "#recycle", "#snapshot", "$recycle.bin", "__macosx", "lost+found",
     "system volume information")
)  # fmt: skip
"""Folders, in small letters, in which systems and shared disks keep what is nobody's picture."""


def hidden_part(path: str) -> str:
    """The first part of a path that is a hidden or a system folder, or macOS's ``._`` before the
    name of a file; empty for none.

    >>> hidden_part("a/.ipynb_checkpoints/b.png"), hidden_part("x.zip::__MACOSX/._a.jpg")
    ('.ipynb_checkpoints', '__MACOSX')
    >>> hidden_part("a/.b.png"), hidden_part("./a/../b.png")
    ('', '')
    """
    *folders, name = path.replace(MARK, "/").split("/")
    for part in folders:
        if (part.startswith(".") and part not in (".", "..")) or part.lower() in _SYSTEM:
            return part
    return "._" if name.startswith("._") else ""


ALIKE: Final = {".txt": (".caption",)}
"""Suffixes of files that are as good as those of another suffix, if there are none of it."""


def sidecar_roles(sidecars: Sequence[str]) -> dict[str, int]:
    """The roles of files beside images, by suffix: 1 for the first of the wanted suffixes, and so
    on.

    >>> sidecar_roles([".json", ".txt"])
    {'.json': 1, '.txt': 2, '.caption': 2}
    """
    numbered = enumerate(sidecars, start=1)
    return {each: role for role, suffix in numbered for each in (suffix, *ALIKE.get(suffix, ()))}


def join(shard: str, member: str) -> str:
    """Join shard and member to a path."""
    return f"{shard}{MARK}{member}"


def split(path: str) -> tuple[str, str] | None:
    """Split a path into shard and member; None for an ordinary file."""
    shard, mark, member = path.partition(MARK)
    return (shard, member) if mark and member and is_shard(shard) else None


def stem(path: str) -> str:
    """A path without its suffix, shared by an image and the files beside it.

    >>> stem("a.b/c.png"), stem("x.parquet::000000012"), stem("x.tar::a.jpg")
    ('a.b/c', 'x.parquet::000000012', 'x.tar::a')
    """
    place = split(path)
    if place is None:
        return posixpath.splitext(path)[0]
    return join(place[0], posixpath.splitext(place[1])[0])
