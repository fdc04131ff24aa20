"""Questions to a model: which of some texts belongs to an image or a box, or which of some boxes to
a text."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from glit.dataset.local_pairs import LocalPair
from glit.errors import InputError
from glit.evaluation.encode import Box, Picture
from glit.images import Pixels, decode
from glit.text.spans import Span

_LOCKS = 64
ImagePart = tuple[Path, Box | None]
"""An image file, and a box of it in pixels; None for the whole image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Images or boxes, and texts, some of which belong together.

    One image and several texts ask for the text; several boxes and one text ask for the box. As
    many images as texts are a set in which image i belongs to text i.
    """

    parts: tuple[ImagePart, ...]
    texts: tuple[str, ...]
    right: frozenset[int]
    """Which texts (of one image) or boxes (of one text) are right; of a set, all."""
    kind: str
    """Category with a score of its own; empty if the benchmark has none."""


Asked = TypeVar("Asked")


def of_first_images(
    asked: Iterable[Asked], limit: int, image_of: Callable[[Asked], Path]
) -> Iterator[Asked]:
    """Yield what is about one of the first images.

    Args:
        asked: questions, expressions or boxes.
        limit: number of images; 0 for all.
        image_of: the image that each is about.
    """
    images: set[Path] = set()
    for each in asked:
        image = image_of(each)
        if not limit or image in images or len(images) < limit:
            images.add(image)
            yield each


class QuestionImages:
    """Image files as a collection of a measurement; the last few stay decoded, since several boxes
    of one image follow each other."""

    def __init__(self, name: str, paths: Sequence[Path]) -> None:
        missing = [path for path in paths if not path.is_file()]
        if missing:
            raise InputError(
                f"{name}: {len(missing)} of {len(paths)} images are missing (first: {missing[0]}); "
                "give their folder with --images"
            )
        self.name = name
        self.paths = list(paths)
        self.names = [path.name for path in paths]
        self.captions: list[tuple[str, ...]] = [()] * len(paths)
        self._decoded = functools.lru_cache(maxsize=8)(self._decode)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def _decode(self, index: int) -> Pixels:
        return decode(self.image(index))

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        return self.paths[index].read_bytes()

    def pixels(self, index: int) -> Pixels:
        """The decoded image."""
        with self._locks[index % _LOCKS]:  # threads that want the same image wait for one of them
            return self._decoded(index)

    def sentences(self, index: int) -> list[list[Span]]:
        """None: texts belong to questions."""
        return []

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """None: boxes belong to questions."""
        return ()

    def size(self, index: int) -> tuple[int, int]:
        """Width and height, pixels."""
        height, width, _ = self.pixels(index).shape
        return width, height


class Questions(QuestionImages):
    """Questions, and the image files that they ask about."""

    def __init__(self, name: str, questions: Sequence[Question]) -> None:
        number: dict[Path, int] = {}
        for question in questions:
            for path, _ in question.parts:
                number.setdefault(path, len(number))
        super().__init__(name, list(number))
        self.questions = list(questions)
        for question in questions:
            index = number[question.parts[0][0]]
            self.captions[index] += question.texts
        self._number = number

    def picture(self, part: ImagePart) -> Picture:
        """The part by its image's number."""
        return self._number[part[0]], part[1]

    def pictures(self) -> list[Picture]:
        """Every different part, those of an image together."""
        found = {self.picture(part) for each in self.questions for part in each.parts}
        return sorted(found, key=lambda picture: (picture[0], picture[1] or ()))
