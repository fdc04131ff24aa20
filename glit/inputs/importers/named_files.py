"""Picture files of a user's by their names, for annotations that name files which are not there."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

from glit.images.formats import IMAGE_SUFFIXES, suffix_of
from glit.storage.members import hidden_part

_DIGITS = re.compile(r"(\d{5,})$")


class NamedFiles:
    """The picture files below a folder by name; they are listed when the first is asked for.

    Args:
        folder: whose subfolders are looked at too; links to folders are not followed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by: dict[str, list[Path]] | None = None

    def find(self, path: Path, *, sized: bool) -> Path | None:
        """Return the only file that has this name in another folder, or this name with another
        suffix or in other letter cases; for pictures of a known size also the only one that ends
        in the same number, as ``COCO_train2014_000000000009.jpg`` and ``000000000009.jpg``.

        Args:
            path: as the annotations name it.
            sized: whether they state the picture's size, by which a wrong one shows.

        Returns:
            The file; None if there is none, or several.
        """
        for key in _keys(path, sized=sized):
            if found := self._listed().get(key):
                return found[0] if len(found) == 1 else None
        return None

    def _listed(self) -> dict[str, list[Path]]:
        if self._by is None:
            self._by = defaultdict(list)
            for folder, folders, names in os.walk(self._folder):
                folders[:] = sorted(each for each in folders if not hidden_part(f"{each}/"))
                for name in sorted(names):
                    if suffix_of(name) in IMAGE_SUFFIXES:
                        path = Path(folder, name)
                        for key in _keys(path, sized=True):
                            self._by[key].append(path)
        return self._by


def _keys(path: Path, *, sized: bool) -> list[str]:
    """Return the names under which a file is searched for, the most specific first."""
    stem = path.stem.casefold()
    keys = [f"name {path.name}", f"stem {stem}"]
    if sized and (number := _DIGITS.search(stem)):
        keys.append(f"number {number[1].lstrip('0')}")
    return keys
