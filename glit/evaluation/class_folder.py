"""Read images from one folder per class, for zero-shot classification."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from glit.dataset.local_pairs import LocalPair
from glit.errors import InputError
from glit.images import IMAGE_SUFFIXES, Pixels, decode
from glit.text.spans import Span

NAMES = "classes.json"
"""In the folder: what the classes are called, ``{"n01440764": "tench"}`` or several names each."""
_WORDNET = re.compile(r"n\d{8}")


class ClassFolder:
    """A collection whose images have classes instead of captions."""

    def __init__(self, folder: Path, *, names: str = "", limit: int = 0) -> None:
        """List the images; none is read.

        Args:
            folder: holds one folder a class, with its images in it or in folders below it.
            names: a JSON file of names; without it ``classes.json`` of the folder, and without that
                the folders' own names.
            limit: only so many images, as many of every class as can be; 0 for all.

        Raises:
            InputError: there are fewer than two classes, one is empty, or names are missing or
                the same.
        """
        inside = folder.iterdir() if folder.is_dir() else ()
        kinds = sorted(path for path in inside if path.is_dir() and path.name[0] != ".")
        if len(kinds) < 2:
            raise InputError(
                f"{folder}: found {len(kinds)} folders; wanted one for every class, two or more, "
                "with its images in it"
            )
        self.name = folder.name
        self.classes: list[tuple[str, ...]] = _names(folder, [kind.name for kind in kinds], names)
        """The names of every class, one or more."""
        of_class = [_images(kind) for kind in kinds]
        in_turn = [
            (path, number)
            for row in zip_longest(*of_class)
            for number, path in enumerate(row)
            if path is not None
        ]
        in_turn = in_turn[: limit or None]
        self._paths = [path for path, _ in in_turn]
        self.class_of = [number for _, number in in_turn]
        """The class of every image, by its number in ``classes``."""
        self.names = [path.relative_to(folder).as_posix() for path in self._paths]
        self.captions: list[tuple[str, ...]] = [
            self.classes[number][:1] for number in self.class_of
        ]

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        return self._paths[index].read_bytes()

    def pixels(self, index: int) -> Pixels:
        """The decoded image."""
        return decode(self.image(index))

    def sentences(self, index: int) -> list[list[Span]]:
        """None: a class is no sentence."""
        return [[]]

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """None: nothing is said of regions."""
        return ()

    def size(self, index: int) -> tuple[int, int]:
        """Never asked for: only pairs need it, and there are none."""
        raise AssertionError(f"size of image {index}: a folder of classes carries no pairs")


def _images(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise InputError(f"{folder}: no image of this class; add some, or remove the folder")
    return found


def _names(folder: Path, kinds: Sequence[str], file: str) -> list[tuple[str, ...]]:
    path = Path(file) if file else folder / NAMES
    if file or path.is_file():
        given = _read(path)
        missing = [kind for kind in kinds if not given.get(kind)]
        if missing:
            raise InputError(
                f"{path}: names no class {missing[0]!r} ({len(missing)} of {len(kinds)} folders "
                "have no name); add them"
            )
        classes = [given[kind] for kind in kinds]
    else:
        ids = [kind for kind in kinds if _WORDNET.fullmatch(kind)]
        if ids:
            raise InputError(
                f"{folder}: {ids[0]} is no word a model knows; say what the {len(ids)} classes are "
                f'called in {path}: {{"{ids[0]}": "..."}}'
            )
        classes = [(kind.replace("_", " "),) for kind in kinds]
    owner: dict[str, str] = {}
    for kind, names in zip(kinds, classes, strict=True):
        for name in names:
            if owner.setdefault(name, kind) != kind:
                raise InputError(
                    f"{folder}: the classes {owner[name]} and {kind} are both called {name!r}, so "
                    "no model could tell them apart; give them other names"
                )
    return classes


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = {
            kind: (names,) if isinstance(names, str) else tuple(names)
            for kind, names in values.items()
        }
        if not all(isinstance(name, str) and name for names in found.values() for name in names):
            raise ValueError("a name is no text")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f'{path}: wanted names of classes as {{"folder": "name"}} ({error})'
        ) from error
    return found
