"""Draw a scene's content from a seed and an index: objects with attributes and places.

Coordinates are fractions of the picture; attributes are the keys of
:mod:`glit.scenes.vocabulary`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, LIGHTS, PATTERNS, SHAPES, SIZES

_NUM_OBJECTS = {"easy": (1, 2), "normal": (2, 4), "hard": (3, 5), "varied": (3, 5)}
_MAX_OVERLAP = {"easy": 0.0, "normal": 0.0, "hard": 0.25, "varied": 0.25}
"""Largest share of the smaller of two extents that the other may cover."""
HARD = ("hard", "varied")
"""Levels with twins and similar objects; both paint the same pictures."""

_CELL_MARGIN = 0.04
"""Smallest distance of a centre from the border of its cell, so that its place is unambiguous."""

_EDGE_MARGIN = 0.01
_PLACING_TRIES = 40

SPLITS = {"train": (0, 1_000_000), "validation": (1_000_000, 2_000_000), "test": (2_000_000, None)}
"""Seed ranges ``[first, end)`` of the splits."""


def split_of_seed(seed: int) -> str:
    """The split a seed belongs to.

    >>> split_of_seed(7), split_of_seed(1_000_000), split_of_seed(2_000_000)
    ('train', 'validation', 'test')
    """
    for name, (first, end) in SPLITS.items():
        if seed >= first and (end is None or seed < end):
            return name
    raise AssertionError(f"seeds are not negative, got {seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneObject:
    """An object of a scene."""

    shape: str
    colour: str
    pattern: str
    size: str
    place: int
    """Cell of the 3x3 grid that holds the centre, 0 to 8 in reading order."""
    cx: float
    cy: float
    side: float
    """Centre and side of the square extent, as fractions of the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The content of a scene, before rendering and captions."""

    seed: int
    index: int
    level: str
    background: str
    light: str
    objects: tuple[SceneObject, ...]
    """Painted in this order, the last on top."""
    twin_of: int | None
    """Index of the scene that differs from this one in one attribute of one object."""
    text_seed: int
    """Seeds the choice of words; twins share it."""
    texture_seed: int


def _generator(seed: int, index: int) -> random.Random:
    return random.Random((seed << 40) + index)


def draw_scene(seed: int, index: int, *, level: str = "normal") -> Scene:
    """Draw the scene of a seed and an index; equal on every machine and at every image size.

    At ``hard`` every fourth scene (index 3, 7, 11, …) is the twin of the one before it. The objects
    of ``varied`` are those of ``hard``.
    """
    if level in HARD and index % 4 == 3:
        original = _draw(seed, index - 1, level)
        return _twin(original, index, _generator(seed, index))
    return _draw(seed, index, level)


def _draw(seed: int, index: int, level: str) -> Scene:
    rng = _generator(seed, index)
    low, high = _NUM_OBJECTS[level]
    kinds = _draw_kinds(rng, rng.randint(low, high), level)
    return Scene(
        seed=seed,
        index=index,
        level=level,
        background=rng.choice(tuple(BACKGROUNDS)),
        light=rng.choice(tuple(LIGHTS)),
        objects=_place(rng, kinds, _MAX_OVERLAP[level]),
        twin_of=None,
        text_seed=rng.getrandbits(48),
        texture_seed=rng.getrandbits(48),
    )


def _draw_kinds(rng: random.Random, count: int, level: str) -> list[tuple[str, str, str]]:
    """Distinct (shape, colour, pattern) triples; at ``hard`` later ones vary an earlier one."""
    kinds: list[tuple[str, str, str]] = []
    while len(kinds) < count:
        kind = (rng.choice(SHAPES), rng.choice(tuple(COLOURS)), rng.choice(PATTERNS))
        if level in HARD and kinds and rng.random() < 0.7:
            kind = _change_one(rng, rng.choice(kinds))
        same_name = any(kind[:2] == other[:2] for other in kinds)
        if kind in kinds or (same_name and level not in HARD):
            continue
        kinds.append(kind)
    return kinds


def _change_one(rng: random.Random, kind: tuple[str, str, str]) -> tuple[str, str, str]:
    """The same triple with one of its three values replaced by another."""
    position = rng.randrange(3)
    choices = (SHAPES, tuple(COLOURS), PATTERNS)[position]
    value = rng.choice([c for c in choices if c != kind[position]])
    changed = list(kind)
    changed[position] = value
    return (changed[0], changed[1], changed[2])


def _place(
    rng: random.Random, kinds: list[tuple[str, str, str]], max_overlap: float
) -> tuple[SceneObject, ...]:
    """Objects in distinct cells with little overlap; sizes shrink when a size finds no room."""
    while True:
        placed: list[SceneObject] = []
        for shape, colour, pattern in kinds:
            found = _find_room(rng, placed, max_overlap)
            if found is None:
                break
            size, place, cx, cy, side = found
            placed.append(
                SceneObject(
                    shape=shape,
                    colour=colour,
                    pattern=pattern,
                    size=size,
                    place=place,
                    cx=cx,
                    cy=cy,
                    side=side,
                )
            )
        if len(placed) == len(kinds):
            return tuple(placed)


def _find_room(
    rng: random.Random, placed: list[SceneObject], max_overlap: float
) -> tuple[str, int, float, float, float] | None:
    """Size, cell, centre and side of one more object, or None when none was found."""
    free = [cell for cell in range(9) if all(cell != other.place for other in placed)]
    names = tuple(SIZES)
    wanted = rng.randrange(len(names))
    for attempt in range(_PLACING_TRIES):
        name = names[max(0, wanted - attempt // 8)]
        low, high = SIZES[name]
        side = low + (high - low) * rng.random()
        cell = rng.choice(free)
        cx = _coordinate(rng, cell % 3, side)
        cy = _coordinate(rng, cell // 3, side)
        if all(_overlap(cx, cy, side, other) <= max_overlap for other in placed):
            return name, cell, cx, cy, side
    return None


def _coordinate(rng: random.Random, third: int, side: float) -> float:
    low = max(third / 3 + _CELL_MARGIN, side / 2 + _EDGE_MARGIN)
    high = min((third + 1) / 3 - _CELL_MARGIN, 1 - side / 2 - _EDGE_MARGIN)
    return low + (high - low) * rng.random()


def _overlap(cx: float, cy: float, side: float, other: SceneObject) -> float:
    """Shared area of two extents over the smaller area; extents that almost touch count too."""
    reach = (side + other.side) / 2 + _EDGE_MARGIN
    width = reach - abs(cx - other.cx)
    height = reach - abs(cy - other.cy)
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / min(side, other.side) ** 2


def _twin(original: Scene, index: int, rng: random.Random) -> Scene:
    """The original with one shape, colour or pattern of one object changed."""
    position = rng.randrange(len(original.objects))
    target = original.objects[position]
    others = [
        (o.shape, o.colour, o.pattern) for i, o in enumerate(original.objects) if i != position
    ]
    while True:
        shape, colour, pattern = _change_one(rng, (target.shape, target.colour, target.pattern))
        if (shape, colour, pattern) not in others:
            break
    changed = replace(target, shape=shape, colour=colour, pattern=pattern)
    objects = tuple(changed if i == position else o for i, o in enumerate(original.objects))
    return replace(original, index=index, objects=objects, twin_of=original.index)
