"""Training scenes, painted: a pool of them on disk, so that painting does not eat training time.

The pool is derived from ``(POOL_SEED, index)`` alone; any process may build it, all may map it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from glit.scenes import Scene, draw_scene, render
from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, LIGHTS, PATTERNS, SHAPES, SIZES

POOL_SEED = 1
"""A training seed (see ``glit.scenes.SPLITS``)."""
POOL_SCENES = 65_536
IMAGE_PX = 128
MAX_OBJECTS = 5
PATCH_PX = 16
BUILD = Path("build/mini")

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "pattern": PATTERNS,
    "size": tuple(SIZES),
}
"""Names of the columns of ``Painted.attributes`` and their values."""

_LEVELS = ("easy", "normal", "normal", "normal", "hard", "normal", "normal", "normal")
_MAPPED = ("pixels", "object_ids")
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Painted:
    """Scenes as arrays; N scenes, at most K = 5 objects each."""

    pixels: np.ndarray
    """uint8 ``[N, 128, 128, 3]``."""
    object_ids: np.ndarray
    """uint8 ``[N, 128, 128]``: 0 background, k + 1 object k."""
    num_objects: np.ndarray
    """int64 ``[N]``."""
    attributes: np.ndarray
    """int64 ``[N, K, 4]``: indices into the values of ``ATTRIBUTES``; -1 past the last object."""
    places: np.ndarray
    """int64 ``[N, K]``."""
    boxes: np.ndarray
    """float32 ``[N, K, 4]``: x0, y0, x1, y1 in pixels; zero past the last object."""
    patch_objects: np.ndarray
    """int64 ``[N, 64]``: the object (k + 1) that covers most of each 16 px patch, or 0."""
    settings: np.ndarray
    """int64 ``[N, 2]``: background and light."""

    def __len__(self) -> int:
        return len(self.num_objects)


def painted(scenes: list[Scene]) -> Painted:
    """Paint scenes and describe them."""
    num = len(scenes)
    attributes = np.full((num, MAX_OBJECTS, len(ATTRIBUTES)), -1, dtype=np.int64)
    places = np.full((num, MAX_OBJECTS), -1, dtype=np.int64)
    boxes = np.zeros((num, MAX_OBJECTS, 4), dtype=np.float32)
    settings = np.zeros((num, 2), dtype=np.int64)
    renderings = [render(scene, size_px=IMAGE_PX) for scene in scenes]
    for i, (scene, rendering) in enumerate(zip(scenes, renderings, strict=True)):
        settings[i, 0] = tuple(BACKGROUNDS).index(scene.background)
        settings[i, 1] = tuple(LIGHTS).index(scene.light)
        boxes[i, : len(scene.objects)] = rendering.boxes_xyxy
        for k, item in enumerate(scene.objects):
            attributes[i, k] = [v.index(getattr(item, name)) for name, v in ATTRIBUTES.items()]
            places[i, k] = item.place
    return Painted(
        pixels=np.stack([each.pixels for each in renderings]),
        object_ids=np.stack([each.object_ids for each in renderings]),
        num_objects=np.array([len(scene.objects) for scene in scenes]),
        attributes=attributes,
        places=places,
        boxes=boxes,
        patch_objects=np.stack([patch_objects(each.object_ids) for each in renderings]),
        settings=settings,
    )


def patch_objects(object_ids: np.ndarray) -> np.ndarray:
    """The object that covers most of each patch, if it covers a tenth of it.

    :param object_ids: uint8 ``[H, W]``
    :returns: int64 ``[(H / 16) * (W / 16)]``: k + 1, or 0 for background
    """
    rows = object_ids.shape[0] // PATCH_PX
    patches = object_ids.reshape(rows, PATCH_PX, rows, PATCH_PX).swapaxes(1, 2)
    patches = patches.reshape(rows * rows, PATCH_PX * PATCH_PX)
    shares = np.stack([(patches == k).mean(axis=1) for k in range(1, MAX_OBJECTS + 1)], axis=1)
    return np.where(shares.max(axis=1) >= 0.1, shares.argmax(axis=1) + 1, 0).astype(np.int64)


def pool_scene(index: int) -> Scene:
    """Scene ``index`` of the pool: three quarters normal, the rest easy and hard."""
    return draw_scene(POOL_SEED, index, level=_LEVELS[index % len(_LEVELS)])


def load_pool(folder: Path = BUILD / "pool", *, num: int = POOL_SCENES) -> Painted:
    """Map the pool from disk, painting it first when it is not there (about half a minute)."""
    if not (folder / "arrays.npz").exists():
        _build(folder, num)
    mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _MAPPED}
    arrays = np.load(folder / "arrays.npz")
    return Painted(**mapped, **{name: arrays[name] for name in arrays.files})


def _build(folder: Path, num: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shape, unique = (num, IMAGE_PX, IMAGE_PX), os.getpid()
    new = {name: folder / f"{name}.{unique}.npy" for name in _MAPPED}
    shapes = {"pixels": (*shape, 3), "object_ids": shape}
    mapped = {
        name: np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shapes[name])
        for name, path in new.items()
    }
    rest: dict[str, list[np.ndarray]] = {f.name: [] for f in fields(Painted) if f.name not in new}
    for start in range(0, num, _BLOCK):
        block = painted([pool_scene(index) for index in range(start, min(start + _BLOCK, num))])
        for name, array in mapped.items():
            array[start : start + len(block)] = getattr(block, name)
        for name, parts in rest.items():
            parts.append(getattr(block, name))
    for name, path in new.items():
        mapped[name].flush()
        path.replace(folder / f"{name}.npy")
    arrays = folder / f"arrays.{unique}.npz"
    columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in rest.items()}
    np.savez(arrays, **columns)
    arrays.replace(folder / "arrays.npz")


def fresh_scenes(rng: np.random.Generator, num: int, *, max_objects: int) -> list[Scene]:
    """Training scenes from beyond the pool, with at most ``max_objects`` objects each."""
    scenes: list[Scene] = []
    while len(scenes) < num:
        scene = pool_scene(int(rng.integers(POOL_SCENES, 2**40)))
        if len(scene.objects) <= max_objects:
            scenes.append(scene)
    return scenes
