"""Find the pictures of annotation files that are named like them, without a suffix."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES, suffix_of
from glit.inputs.published.files import check_place
from glit.storage.members import hidden_part

_PICTURES = IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES


class PictureFolder:
    """The pictures below a folder.

    Args:
        root: the folder; what lies outside is never looked at.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[Path, dict[str, list[str]]] = {}

    def find(self, stem: PurePosixPath) -> Path:
        """The picture of a name without suffix, by the longest tail of it that is there.

        Args:
            stem: ``images/train/a`` for ``images/train/a.jpg``.

        Raises:
            ValueError: it leads out of the folder, or two pictures have the name.
        """
        for first in range(len(stem.parts)):
            place = check_place(self.root.joinpath(*stem.parts[first:]), self.root)
            if found := self._in(place.parent).get(place.name, []):
                if len(found) > 1:
                    raise ValueError(f"two pictures have its name: {found[0]} and {found[1]}")
                return place.parent / found[0]
        return self.root.joinpath(f"{stem}.jpg")  # reported as missing

    def holds(self, stem: PurePosixPath) -> bool:
        """Return whether a picture has this name without suffix."""
        try:
            return self.find(stem).is_file()
        except ValueError:  # two have
            return True

    def _in(self, folder: Path) -> dict[str, list[str]]:
        if folder not in self._names:
            found: dict[str, list[str]] = defaultdict(list)
            for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
                if suffix_of(name) in _PICTURES:
                    found[os.path.splitext(name)[0]].append(name)
            self._names[folder] = dict(found)
        return self._names[folder]


def files_below(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield the files of a suffix in a folder and below it, sorted; links to
    folders, hidden folders and those of systems are left."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not hidden_part(f"{each}/"))
        for name in sorted(names):
            if name.lower().endswith(suffix):
                yield Path(place) / name
