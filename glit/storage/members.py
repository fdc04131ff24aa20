"""Names of images inside WebDataset tars, ZIP archives and Parquet files.

Nothing is unpacked to a disk: a member of an archive is a range of its bytes, an image of a table
lies in a row group. A member is called ``SHARD::MEMBER``, with ``SHARD`` relative to the root.
"""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

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


def spellings(path: str) -> list[str]:
    """The paths that a path of somebody else's file may mean, the most literal first: that of an
    address, with slashes for backslashes, without a query, with its ``%20`` decoded, and without
    what Label Studio puts before the name of an uploaded file.

    >>> spellings("https://a.org/x/b%20c.jpg?sig=1")
    ['https://a.org/x/b%20c.jpg?sig=1', '/x/b%20c.jpg?sig=1', '/x/b%20c.jpg', '/x/b c.jpg']
    >>> spellings("x\\\\0a1b2c3d-y.jpg")
    ['x\\\\0a1b2c3d-y.jpg', 'x/0a1b2c3d-y.jpg', 'x/y.jpg']
    """
    found = [path]
    for change in _CHANGES:
        if (other := change(found[-1])) != found[-1]:
            found.append(other)
    return found


_CHANGES: tuple[Callable[[str], str], ...] = (
    lambda path: re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*", "", path),
    lambda path: path.replace("\\", "/"),
    lambda path: path.partition("?")[0] or path,
    unquote,
    lambda path: re.sub(r"(^|/)[0-9a-f]{8}-(?=[^/]+$)", r"\1", path),
)


def spelt_on_disk(root: str | os.PathLike[str], path: str) -> str:
    """A path below a folder as the disk spells it: in Unicode's normal form (macOS writes ``é`` as
    two characters, a caption file as one), or as one of :func:`spellings`; at last in other letter
    cases, or without the signs that Label Studio removes, with a warning. A path that is not there
    stays.
    """
    if "\0" in path or len(path) > _MOST_PATH or os.path.lexists(os.path.join(root, path)):
        return path
    if MARK in path:
        return path
    plain = map(posixpath.normpath, spellings(path))
    others = [each for each in plain if each != ".." and not each.startswith(("/", "../"))]
    for one in others:
        if found := _walked(root, one, _forms):
            return found
    for one in others:
        if found := _walked(root, one, _alike):
            if str(root) not in _told:
                _told.add(str(root))
                warnings.warn(
                    f"{root}: has no {path!r}, so {found!r} is taken for it; other names that "
                    "differ in letter case or signs alone are too",
                    stacklevel=2,
                )
            return found
    return path


_MOST_PATH = 4096
_told: set[str] = set()


def _walked(
    root: str | os.PathLike[str], path: str, names: Callable[[str, str], Sequence[str]]
) -> str:
    """The path with a name that is there for each of its parts; empty if there is none."""
    found = ""
    for part in path.split("/"):
        there = names(os.path.join(root, found), part)
        if len(there) != 1:
            return ""
        found = posixpath.join(found, there[0])
    return found


def _forms(folder: str, part: str) -> Sequence[str]:
    forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
    there = (each for each in forms if os.path.lexists(os.path.join(folder, each)))
    return [name] if (name := next(there, "")) else []


def _alike(folder: str, part: str) -> Sequence[str]:
    if os.path.lexists(os.path.join(folder, part)):
        return [part]
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return []
    return _loose_names(folder, changed).get(_loose(part), [])


@lru_cache(maxsize=64)
def _loose_names(folder: str, changed: int) -> dict[str, list[str]]:
    """The names in a folder by what they have in common with names that are written otherwise."""
    found: dict[str, list[str]] = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    for name in names:
        found.setdefault(_loose(name), []).append(name)
    return found


def _loose(name: str) -> str:
    plain = unicodedata.normalize("NFC", name).strip().replace(" ", "_")
    return re.sub(r"[^-\w.]", "", plain).casefold()


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


def in_cases(name: str) -> tuple[str, ...]:
    """A file's name, and with its suffix in capitals, as ``0001.TXT`` beside ``0001.JPG``.

    >>> in_cases("a.b/0001.txt")
    ('a.b/0001.txt', 'a.b/0001.TXT', 'a.b/0001.Txt')
    """
    first, suffix = posixpath.splitext(name)
    return name, first + suffix.upper(), first + suffix[:2].upper() + suffix[2:]


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
