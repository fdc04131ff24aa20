"""Members of archives: their names, and the captions of WebDataset's samples."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glit.images.formats import IMAGE_SUFFIXES, suffix_of
from glit.storage.members import BAD_NAME, ESCAPES, escaped, is_utf8, stem

CAPTION_KEYS = ("caption", "text")
_BESIDE = (".txt", ".json", ".caption")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file in an archive."""

    name: str
    """Relative; empty for the place where the archive is damaged."""
    offset: int
    """Offset of its first byte, or of the header before it."""
    size: int
    """Bytes; negative for one that is refused (:data:`glit.storage.members.REFUSED`)."""


def member_name(given: str, seen: dict[str, int]) -> tuple[str, int]:
    """The name of a member, and the size of one that is refused for its name, else 0.

    Of members that have the same name the second is called ``NAME#2``, and so on.

    >>> seen = {}
    >>> [member_name(name, seen) for name in ("./a.png", "a.png", "../a.png")]
    [('a.png', 0), ('a#2.png', 0), ('../a.png', -4)]

    Args:
        given: as the archive has it.
        seen: names and how often they came so far; it grows.
    """
    parts = [part for part in given.split("/") if part not in ("", ".")]
    escapes = given.startswith("/") or ".." in parts
    name = given if escapes else "/".join(parts)
    seen[name] = number = seen.get(name, 0) + 1
    if number > 1:
        before = stem(name)
        name = f"{before}#{number}{name[len(before) :]}"
    if not is_utf8(name):
        return escaped(name), BAD_NAME
    return name, ESCAPES if escapes else 0


def sample_key(name: str) -> str:
    """The name up to the first dot after its folder, by which WebDataset joins files to a sample.

    >>> sample_key("a.b/c.left.jpg")
    'a.b/c'
    """
    folder, base = posixpath.split(name)
    return posixpath.join(folder, base[:1] + base[1:].partition(".")[0])


class ArchiveShard:
    """An archive whose members are read by name.

    Args:
        members: all of them.
        read: returns the first bytes of one, up to a number.
    """

    def __init__(self, members: Sequence[Member], read: Callable[[Member, int], bytes]) -> None:
        self._members = {member.name: member for member in members if member.size >= 0}
        self._read = read
        self._pictures: Counter[str] | None = None

    def head(self, member: Member, most: int) -> bytes:
        """The first bytes of a member, up to a number; empty if it is damaged."""
        try:
            return self._read(member, most)
        except OSError:
            return b""

    def _whole(self, name: str) -> bytes:
        member = self._members[name]
        return self._read(member, member.size)

    def read(self, name: str) -> bytes:
        """Read a member. For a missing ``NAME.txt`` beside ``NAME.jpg``, the caption in
        ``NAME.json``; else that of the sample, if the picture is the only one with its key:
        ``KEY.txt`` for ``KEY.left.jpg``.

        Raises:
            FileNotFoundError: there is no such member.
            OSError: the archive is damaged, or became shorter.
        """
        if name in self._members:
            return self._whole(name)
        kind = suffix_of(name)
        if kind in _BESIDE:
            key = sample_key(name)
            alone = f"{key}{kind}" != name and self._num_pictures(key) == 1
            for each in (stem(name), *([key] if alone else [])):
                if (own := f"{each}{kind}") in self._members:
                    return self._whole(own)
                if kind == ".txt" and (beside := f"{each}.json") in self._members:
                    caption = _caption(self._whole(beside))
                    if caption is not None:
                        return caption.encode()
        raise FileNotFoundError(name)

    def _num_pictures(self, key: str) -> int:
        if self._pictures is None:
            pictures = (name for name in self._members if suffix_of(name) in IMAGE_SUFFIXES)
            self._pictures = Counter(map(sample_key, pictures))
        return self._pictures[key]


def _caption(data: bytes) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    texts = [found[key] for key in CAPTION_KEYS if key in found] if isinstance(found, dict) else []
    return next((text for text in texts if isinstance(text, str)), None)
