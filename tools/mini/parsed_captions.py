"""Parse captions in the mini captioner's wording and check them against a scene."""

from __future__ import annotations

import re
from dataclasses import dataclass

from glit.scenes.layout import Scene
from glit.scenes.vocabulary import (
    BACKGROUNDS,
    COLOURS,
    LIGHTS,
    PATTERNS,
    PLACE_NAMES,
    SHAPES,
    SIZES,
)

_SENTENCE = re.compile(
    rf"(?P<place>{'|'.join(p[0].upper() + p[1:] for p in PLACE_NAMES)}) there is an? "
    rf"(?P<size>{'|'.join(SIZES)}) (?P<pattern>{'|'.join(PATTERNS)}) "
    rf"(?P<colour>{'|'.join(COLOURS)}) (?P<shape>{'|'.join(SHAPES)})\."
)
_WELL_FORMED = re.compile(
    r"The picture shows (one object|(two|three|four|five) objects)\."
    rf"( {_SENTENCE.pattern.replace('?P<', '?:<')})+".replace("(?:<place>", "(?:")
    .replace("(?:<size>", "(?:")
    .replace("(?:<pattern>", "(?:")
    .replace("(?:<colour>", "(?:")
    .replace("(?:<shape>", "(?:")
    + rf" The background is ({'|'.join(BACKGROUNDS.values())})\."
    + rf" The scene is lit by ({'|'.join(phrase for phrase, _ in LIGHTS.values())})\."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The statement of a caption in the mini captioner's wording about one object."""

    shape: str
    colour: str
    pattern: str
    size: str
    place: int


def objects_told(caption: str) -> list[Told]:
    """Parse the objects that a caption describes, in order."""
    names = [p[0].upper() + p[1:] for p in PLACE_NAMES]
    return [
        Told(
            shape=found["shape"],
            colour=found["colour"],
            pattern=found["pattern"],
            size=found["size"],
            place=names.index(found["place"]),
        )
        for found in _SENTENCE.finditer(caption)
    ]


def is_well_formed(caption: str) -> bool:
    """Whether a caption is complete and in the mini captioner's wording."""
    return _WELL_FORMED.fullmatch(caption) is not None


def true_of(told: Told, scene: Scene) -> bool:
    """Whether the scene holds an object of that shape and colour at that place."""
    return any(
        (o.shape, o.colour, o.place) == (told.shape, told.colour, told.place) for o in scene.objects
    )
