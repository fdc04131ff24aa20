"""Crops of pool scenes for the matcher: tight to loose objects, quadrants and centres."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from glit.data.geometry import iou
from glit.scenes.captions import background_sentence, light_sentence, object_sentence
from tools.mini.pool import IMAGE_PX, Painted, pool_scene

_MAX_MARGIN = 0.25


def to_tensor(images: np.ndarray) -> Tensor:
    """uint8 ``[B, H, W, 3]`` to float32 ``[B, 3, H, W]`` in ``[-1, 1]``."""
    return torch.tensor(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


def object_box(box_xyxy: np.ndarray, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A box around an object: from truly tight to a quarter larger, sides moved apart.

    Four times of ten made square, as CLIP's own preprocessing would crop it.
    """
    x0, y0, x1, y1 = (float(v) for v in box_xyxy)
    margin = _MAX_MARGIN * rng.random() ** 2
    width, height = x1 - x0, y1 - y0
    shifts = (rng.random(4) * 2 * margin - margin * 0.15) / 2
    x0, x1 = x0 - shifts[0] * width, x1 + shifts[1] * width
    y0, y1 = y0 - shifts[2] * height, y1 + shifts[3] * height
    if rng.random() < 0.4:
        half = max(x1 - x0, y1 - y0) / 2
        cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
        x0, x1, y0, y1 = cx - half, cx + half, cy - half, cy + half
    return _rounded(x0, y0, x1, y1)


def region_box(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A quadrant, the centre region or the whole picture, as FLISM's grid has them."""
    half = IMAGE_PX // 2
    corners = [(0, 0), (half, 0), (0, half), (half, half), (half // 2, half // 2)]
    if rng.random() < 0.2:
        return 0, 0, IMAGE_PX, IMAGE_PX
    x0, y0 = corners[rng.integers(len(corners))]
    return x0, y0, x0 + half, y0 + half


def cut(pool: Painted, index: int, box: tuple[int, int, int, int]) -> np.ndarray:
    """A crop warped to the model's input, bicubic: uint8 ``[128, 128, 3]``."""
    x0, y0, x1, y1 = box
    image = Image.fromarray(pool.pixels[index, y0:y1, x0:x1])
    return np.asarray(image.resize((IMAGE_PX, IMAGE_PX), Image.Resampling.BICUBIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """A crop and a sentence that is true of it."""

    pixels: np.ndarray
    """uint8 ``[128, 128, 3]``."""
    text: str
    kind: str
    """What the sentence tells of: object, background or light."""
    attributes: np.ndarray
    """int64 ``[4]``; -1 for regions that are no object."""
    settings: np.ndarray
    """int64 ``[2]``: background and light of the scene."""
    shows: set[tuple[int, ...]]
    """Shape, colour and pattern of every object the crop mostly shows."""


def draw_crops(
    pool: Painted, rng: np.random.Generator, *, num_objects: int, num_regions: int, one_colour: bool
) -> list[Crop]:
    """Object crops, of one colour if asked, then grid regions of the same scenes."""
    words = random.Random(int(rng.integers(2**62)))
    candidates = rng.integers(len(pool), size=num_objects * 16)
    slots = rng.integers(pool.num_objects[candidates])
    if one_colour:
        colours = pool.attributes[candidates, slots, 1]
        order = np.argsort(colours != rng.integers(10), kind="stable")
        candidates, slots = candidates[order], slots[order]
    chosen = zip(candidates[:num_objects], slots[:num_objects], strict=True)
    objects = [_object_crop(pool, int(index), int(k), rng, words) for index, k in chosen]
    return objects + [_region_crop(pool, int(i), rng, words) for i in candidates[:num_regions]]


def _object_crop(
    pool: Painted, index: int, k: int, rng: np.random.Generator, words: random.Random
) -> Crop:
    return Crop(
        pixels=cut(pool, index, object_box(pool.boxes[index, k], rng)),
        text=object_sentence(pool_scene(index).objects[k], words),
        kind="object",
        attributes=pool.attributes[index, k],
        settings=pool.settings[index],
        shows={_name(pool, index, k)},
    )


def _region_crop(pool: Painted, index: int, rng: np.random.Generator, words: random.Random) -> Crop:
    box, scene = region_box(rng), pool_scene(index)
    about_light = rng.random() < 0.4
    objects = pool.boxes[index, : pool.num_objects[index]]
    overlaps = iou(np.array([box], dtype=float), objects)[0]
    return Crop(
        pixels=cut(pool, index, box),
        text=(light_sentence if about_light else background_sentence)(scene, words),
        kind="light" if about_light else "background",
        attributes=np.full(4, -1),
        settings=pool.settings[index],
        shows={_name(pool, index, int(k)) for k in np.flatnonzero(overlaps >= 0.5)},
    )


def _name(pool: Painted, index: int, k: int) -> tuple[int, ...]:
    """Shape, colour and pattern: what a sentence can tell of a crop."""
    return tuple(pool.attributes[index, k, :3].tolist())


def true_pairs(crops: list[Crop]) -> np.ndarray:
    """Which crop's sentence is true of which crop: bool ``[sentences, crops]``.

    Sizes and places cannot be told from a crop, so an object sentence is true of every crop with
    its shape, colour and pattern. A background or light sentence is true of every grid region of
    a scene with that background or light.
    """
    result = np.zeros((len(crops), len(crops)), dtype=bool)
    settings = np.stack([crop.settings for crop in crops])
    is_region = np.array([crop.kind != "object" for crop in crops])
    for i, crop in enumerate(crops):
        if crop.kind == "object":
            name = tuple(crop.attributes[:3].tolist())
            result[i] = [name in other.shows for other in crops]
        else:
            column = 0 if crop.kind == "background" else 1
            result[i] = is_region & (settings[:, column] == crop.settings[column])
    return result


def _rounded(x0: float, y0: float, x1: float, y1: float) -> tuple[int, int, int, int]:
    left, top = max(0, round(x0)), max(0, round(y0))
    right, bottom = max(left + 4, round(x1)), max(top + 4, round(y1))
    return left, top, min(IMAGE_PX, right), min(IMAGE_PX, bottom)
