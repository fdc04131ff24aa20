"""Render a scene's pixels: background texture, objects with patterns, light."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from glit.scenes.layout import Scene, SceneObject
from glit.scenes.shapes import coverage
from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, LIGHTS

_TEXTURE_SEED = 20_240_607
_MIN_VISIBLE = 0.5
"""Coverage from which a pixel belongs to an object's mask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A painted scene and where its objects are."""

    pixels: np.ndarray
    """uint8 ``[size, size, 3]``, RGB."""
    object_ids: np.ndarray
    """uint8 ``[size, size]``: 0 for the background, ``k + 1`` where object ``k`` is visible."""
    boxes_xyxy: tuple[tuple[int, int, int, int], ...]
    """Tight box of each object's visible pixels, ends exclusive."""


def render(scene: Scene, *, size_px: int = 128) -> Rendering:
    """Paint a scene at ``size_px`` by ``size_px`` pixels."""
    canvas = _background(scene.background, size_px, scene.texture_seed)
    object_ids = np.zeros((size_px, size_px), dtype=np.uint8)
    for number, item in enumerate(scene.objects, start=1):
        _paint(canvas, object_ids, item, number)
    gain = np.array(LIGHTS[scene.light][1], dtype=np.float32)
    pixels = (canvas * gain).astype(np.uint8)
    boxes = tuple(_tight_box(object_ids == k + 1) for k in range(len(scene.objects)))
    return Rendering(pixels=pixels, object_ids=object_ids, boxes_xyxy=boxes)


def object_colours() -> np.ndarray:
    """The colours of objects and of their patterns, before light: float64 ``[C, 3]``, 0 to 255."""
    main = [np.array(colour, dtype=np.float64) for colour in COLOURS.values()]
    return np.stack([*main, *map(_second_colour, main)])


def background_colours() -> np.ndarray:
    """The base colour of every background, before light: float64 ``[B, 3]``, 0 to 255."""
    nowhere = np.zeros(1)
    tones = [_texture_tone(kind, nowhere, nowhere, nowhere)[0] for kind in BACKGROUNDS]
    return np.array(tones, dtype=np.float64)


def _paint(canvas: np.ndarray, object_ids: np.ndarray, item: SceneObject, number: int) -> None:
    """Blend one object onto ``canvas`` (float32 ``[H, W, 3]``) and mark its pixels."""
    size_px = canvas.shape[0]
    side = max(4, round(item.side * size_px))
    x0 = min(max(round(item.cx * size_px - side / 2), 0), size_px - side)
    y0 = min(max(round(item.cy * size_px - side / 2), 0), size_px - side)
    alpha = coverage(item.shape, side)
    window = canvas[y0 : y0 + side, x0 : x0 + side]
    window += alpha[..., None] * (_fill(item.colour, item.pattern, side, size_px) - window)
    object_ids[y0 : y0 + side, x0 : x0 + side][alpha >= _MIN_VISIBLE] = number


@lru_cache(maxsize=4096)
def _fill(colour: str, pattern: str, side_px: int, size_px: int) -> np.ndarray:
    """Colours of the object's square: float32 ``[side, side, 3]``, 0 to 255, read-only."""
    main = np.array(COLOURS[colour], dtype=np.float32)
    second = _second_colour(main)
    period = max(4, round(size_px / 16))
    row = np.arange(side_px) % period
    if pattern == "striped":
        marked = np.repeat((row >= period / 2)[:, None], side_px, axis=1)
    elif pattern == "dotted":
        offset = (row - (period - 1) / 2) ** 2
        marked = offset[:, None] + offset[None, :] <= (period * 0.31) ** 2
    else:
        marked = np.zeros((side_px, side_px), dtype=bool)
    result = np.where(marked[..., None], second, main).astype(np.float32)
    result.flags.writeable = False
    return result


def _second_colour(main: np.ndarray) -> np.ndarray:
    """The other colour of a pattern: darker, or a grey lighter for very dark ones."""
    return main * 0.45 if main.max() > 60 else main + 110


@lru_cache(maxsize=32)
def _texture(kind: str, size_px: int) -> np.ndarray:
    """A background twice as large as the picture: float32 ``[2 size, 2 size, 3]``, 0 to 255."""
    rng = np.random.default_rng(_TEXTURE_SEED)
    span = 2 * size_px
    unit = size_px / 128
    y, x = np.meshgrid(np.arange(span) / unit, np.arange(span) / unit, indexing="ij")
    noise = rng.random((span, span)) - 0.5
    tone, shade = _texture_tone(kind, x, y, noise)
    result = (np.array(tone, dtype=np.float32) * shade[..., None]).astype(np.float32)
    return np.clip(result, 0, 255)


def _texture_tone(
    kind: str, x: np.ndarray, y: np.ndarray, noise: np.ndarray
) -> tuple[tuple[int, int, int], np.ndarray]:
    """Base colour and brightness; ``x``, ``y`` in 128ths of the picture."""
    match kind:
        case "grass":
            blades = np.sin(x * 1.9 + 2.5 * np.sin(y * 0.35)) * 0.10
            return (112, 134, 88), 1 + blades + 0.25 * noise
        case "sand":
            return (196, 176, 138), 1 + 0.22 * noise
        case "wood":
            seams = (y % 16 < 1.5) * -0.30
            grain = np.sin(y * 1.3 + 0.8 * np.sin(x * 0.10)) * 0.05
            return (150, 116, 84), 1 + seams + grain + 0.04 * noise
        case "brick":
            row = np.floor(y / 10)
            mortar = (y % 10 < 2) | ((x + 10 * (row % 2)) % 20 < 2)
            return (146, 102, 90), 1 + 0.32 * mortar + 0.06 * noise
        case "tiles":
            seams = (y % 20 < 2) | (x % 20 < 2)
            return (150, 154, 158), 1 - 0.28 * seams + 0.04 * noise
        case "water":
            waves = np.sin(y * 0.55 + 1.6 * np.sin(x * 0.12)) * 0.12
            return (98, 128, 156), 1 + waves + 0.04 * noise
    raise AssertionError(f"unknown background {kind}")


def _background(kind: str, size_px: int, texture_seed: int) -> np.ndarray:
    """A window of the texture at an offset taken from the seed: float32 ``[size, size, 3]``."""
    texture = _texture(kind, size_px)
    x0 = texture_seed % size_px
    y0 = (texture_seed // size_px) % size_px
    return texture[y0 : y0 + size_px, x0 : x0 + size_px].copy()


def _tight_box(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Box ``(x0, y0, x1, y1)`` of the true pixels, ends exclusive."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
