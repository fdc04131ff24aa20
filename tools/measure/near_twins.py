"""Near twins: pictures that show nearly, but not, what another one shows.

A twin counts if the difference can be seen: :func:`differs`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import cv2
import numpy as np
from PIL import Image

from glit.scenes.layout import Scene, SceneObject
from glit.scenes.render import render
from glit.scenes.vocabulary import COLOURS, PATTERNS, SHAPES, SIZES

LEAST_AREA, LEAST_LEVELS = 0.01, 12
"""Share of a picture that differs, and by how many of 255 levels of red, green or blue."""
HUES = "other hues"
"""The twin that differs in all hues."""
GRAIN, GRAIN_BLUR = "other place of the ground", 1.0
"""The twin in which grain differs, and its blur."""
_SIDE, _BLUR = 320, 2.0
"""Longest side of the pictures that are compared, and what is too fine to be seen, in pixels."""
_AREAS = (0.012, 0.06)
"""Shares of the picture's area of the parts that are changed."""


def differs(one: Image.Image, two: Image.Image, *, blur: float = _BLUR) -> bool:
    """Return whether two pictures of one size differ visibly: at 320 pixels, blurred by 2 pixels,
    1 % of the pixels or more differ by 12 levels or more of red, green or blue. Grain is compared
    with less blur."""
    seen = []
    for image in (one, two):
        small = image.copy()
        small.thumbnail((_SIDE, _SIDE), reducing_gap=2.0)
        seen.append(cv2.GaussianBlur(np.asarray(small, np.float32), (0, 0), blur))
    apart = np.abs(seen[0] - seen[1]).max(2)
    return float((apart >= LEAST_LEVELS).mean()) >= LEAST_AREA


def is_grey(image: Image.Image) -> bool:
    """Return whether a picture has no colours."""
    return float(np.ptp(np.asarray(image), axis=2).mean()) < 3


def part_twins(
    image: Image.Image, others: Sequence[Image.Image], draw: random.Random
) -> Iterator[tuple[str, Image.Image]]:
    """Yield pictures in which an ellipse or a rectangle of 1.2 to 6 % of the area differs, and one
    in which all hues do.

    Args:
        image: the picture.
        others: pictures from which parts may be taken.
        draw: chooses.
    """
    pixels = np.asarray(image)
    for kind, change in _PARTS.items():
        box = _place(image.size, draw)
        x0, y0, x1, y1 = box
        part = Image.fromarray(pixels[y0:y1, x0:x1])
        twin = image.copy()
        twin.paste(change(part, image, others, draw), box, _mask(part.size, draw))
        yield kind, twin
    yield HUES, _hues_turned(image, draw)


def _place(size: tuple[int, int], draw: random.Random) -> tuple[int, int, int, int]:
    width, height = size
    area, aspect = draw.uniform(*_AREAS) * width * height, draw.uniform(0.6, 1.7)
    wide = min(round((area * aspect) ** 0.5), width - 2)
    tall = min(round((area / aspect) ** 0.5), height - 2)
    x, y = draw.randint(0, width - wide), draw.randint(0, height - tall)
    return x, y, x + wide, y + tall


def _mask(size: tuple[int, int], draw: random.Random) -> Image.Image:
    """A rectangle, or an ellipse, with soft edges."""
    width, height = size
    if draw.random() < 0.5:
        return Image.new("L", size, 255)
    y, x = np.mgrid[:height, :width]
    away = np.hypot((x + 0.5) / width - 0.5, (y + 0.5) / height - 0.5)
    return Image.fromarray(((0.5 - away) * min(size) * 255).clip(0, 255).astype(np.uint8))


Change = Callable[[Image.Image, Image.Image, Sequence[Image.Image], random.Random], Image.Image]


def _taken_from(image: Image.Image, size: tuple[int, int], draw: random.Random) -> Image.Image:
    x = draw.randint(0, max(0, image.width - size[0]))
    y = draw.randint(0, max(0, image.height - size[1]))
    return image.crop((x, y, x + size[0], y + size[1]))


def _hues_turned(image: Image.Image, draw: random.Random) -> Image.Image:
    hsv = np.array(image.convert("HSV"))
    hsv[..., 0] += np.uint8(draw.randint(25, 230))
    return Image.fromarray(hsv, "HSV").convert("RGB")


def _lighter_or_darker(part: Image.Image, *_: object, draw: random.Random) -> Image.Image:
    by = draw.choice((-1, 1)) * draw.randint(14, 50)
    return Image.fromarray((np.asarray(part, np.int16) + by).clip(0, 255).astype(np.uint8))


def _smoothed(part: Image.Image) -> Image.Image:
    blur = min(part.size) / 4
    pixels = np.asarray(part)
    return Image.fromarray(cv2.GaussianBlur(pixels, (0, 0), max(blur, 1)))


_PARTS: dict[str, Change] = {
    "part in other hues": lambda part, image, others, draw: _hues_turned(part, draw),
    "part of the same picture": lambda part, image, others, draw: _taken_from(
        image, part.size, draw
    ),
    "part of another picture": lambda part, image, others, draw: _taken_from(
        draw.choice(others), part.size, draw
    ),
    "part mirrored": lambda part, image, others, draw: part.transpose(
        Image.Transpose.FLIP_LEFT_RIGHT
    ),
    "part lighter or darker": lambda part, image, others, draw: _lighter_or_darker(part, draw=draw),
    "part smoothed away": lambda part, image, others, draw: _smoothed(part),
}


def scene_twins(
    scene: Scene, draw: random.Random, *, size_px: int
) -> Iterator[tuple[str, Image.Image]]:
    """Yield paintings of a scene of which one object, or two, or a part of the ground are others.

    Args:
        scene: the scene.
        draw: chooses.
        size_px: side of the pictures.
    """
    for kind, change in _OBJECTS.items():
        number = draw.randrange(len(scene.objects))
        objects = change(scene.objects, number, draw)
        yield kind, Image.fromarray(render(replace(scene, objects=objects), size_px=size_px).pixels)
    painted = render(scene, size_px=size_px)
    mask = painted.object_ids == draw.randrange(len(scene.objects)) + 1
    pixels = painted.pixels.astype(np.int16)
    yield GRAIN, _other_grain(scene, painted.pixels, draw)
    pixels[mask] += draw.choice((-1, 1)) * draw.randint(14, 50)
    yield "object lighter or darker", Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _other_grain(scene: Scene, pixels: np.ndarray, draw: random.Random) -> Image.Image:
    """A picture in which a rectangle shows another place of the same ground."""
    size_px = len(pixels)
    other = replace(scene, texture_seed=draw.getrandbits(48))
    x0, y0, x1, y1 = _place((size_px, size_px), draw)
    pixels = pixels.copy()
    pixels[y0:y1, x0:x1] = render(other, size_px=size_px).pixels[y0:y1, x0:x1]
    return Image.fromarray(pixels)


Objects = tuple[SceneObject, ...]


def _with(objects: Objects, number: int, **changes: object) -> Objects:
    return tuple(
        replace(each, **changes) if n == number else each  # pyright: ignore[reportArgumentType]
        for n, each in enumerate(objects)
    )


def _other(values: Sequence[str], value: str, draw: random.Random) -> str:
    return draw.choice([each for each in values if each != value])


def _moved(objects: Objects, number: int, draw: random.Random) -> Objects:
    """By 4 to 15 % of the picture's side, across or down."""
    item = objects[number]
    by = draw.uniform(0.04, 0.15)
    if draw.random() < 0.5:
        return _with(objects, number, cx=item.cx + (by if item.cx < 0.5 else -by))
    return _with(objects, number, cy=item.cy + (by if item.cy < 0.5 else -by))


def _swapped(objects: Objects, number: int, draw: random.Random) -> Objects:
    other = draw.choice([n for n in range(len(objects)) if n != number])
    one, two = objects[number], objects[other]
    place = {"cx": two.cx, "cy": two.cy}
    return _with(_with(objects, number, **place), other, cx=one.cx, cy=one.cy)


def _resized(objects: Objects, number: int, draw: random.Random) -> Objects:
    size = _other(tuple(SIZES), objects[number].size, draw)
    return _with(objects, number, side=draw.uniform(*SIZES[size]))


_OBJECTS: dict[str, Callable[[Objects, int, random.Random], Objects]] = {
    "object in another colour": lambda objects, n, draw: _with(
        objects, n, colour=_other(tuple(COLOURS), objects[n].colour, draw)
    ),
    "object in another pattern": lambda objects, n, draw: _with(
        objects, n, pattern=_other(PATTERNS, objects[n].pattern, draw)
    ),
    "object of another shape": lambda objects, n, draw: _with(
        objects, n, shape=_other(SHAPES, objects[n].shape, draw)
    ),
    "object of another size": _resized,
    "object moved": _moved,
    "object removed": lambda objects, n, draw: objects[:n] + objects[n + 1 :],
    "two objects exchanged": _swapped,
}
