"""A pool of rendered training scenes on disk, so that painting does not eat training time.

The pool is derived from ``(POOL_SEED, index)`` alone; any process may build it, all may map it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
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
"""Names of the columns of ``Pool.attributes`` and their values."""

_LEVELS = ("easy", "normal", "normal", "normal", "hard", "normal", "normal", "normal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Scenes as arrays; N scenes, at most K = 5 objects each."""

    pixels: np.ndarray
    """uint8 ``[N, 128, 128, 3]``, mapped from disk."""
    object_ids: np.ndarray
    """uint8 ``[N, 128, 128]``: 0 background, k + 1 object k; mapped from disk."""
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

    def scene(self, index: int) -> Scene:
        """The description the row was painted from."""
        return pool_scene(index)

    def __len__(self) -> int:
        return len(self.num_objects)


def pool_scene(index: int) -> Scene:
    """Scene ``index`` of the pool: three quarters normal, the rest easy and hard."""
    return draw_scene(POOL_SEED, index, level=_LEVELS[index % len(_LEVELS)])


def load_pool(folder: Path = BUILD / "pool", *, num: int = POOL_SCENES) -> Pool:
    """Map the pool, painting it first when it is not there (about half a minute)."""
    if not (folder / "arrays.npz").exists():
        _build(folder, num)
    arrays = np.load(folder / "arrays.npz")
    return Pool(
        pixels=np.load(folder / "pixels.npy", mmap_mode="r"),
        object_ids=np.load(folder / "object_ids.npy", mmap_mode="r"),
        **{name: arrays[name] for name in arrays.files},
    )


def describe(scenes: list[Scene]) -> dict[str, np.ndarray]:
    """Attributes, places and settings of scenes as the integer arrays of :class:`Pool`."""
    num = len(scenes)
    attributes = np.full((num, MAX_OBJECTS, len(ATTRIBUTES)), -1, dtype=np.int64)
    places = np.full((num, MAX_OBJECTS), -1, dtype=np.int64)
    settings = np.zeros((num, 2), dtype=np.int64)
    for i, scene in enumerate(scenes):
        settings[i] = (
            tuple(BACKGROUNDS).index(scene.background),
            tuple(LIGHTS).index(scene.light),
        )
        for k, item in enumerate(scene.objects):
            attributes[i, k] = [
                values.index(getattr(item, name)) for name, values in ATTRIBUTES.items()
            ]
            places[i, k] = item.place
    return {"attributes": attributes, "places": places, "settings": settings}


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


def _build(folder: Path, num: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unique = os.getpid()
    shape = (num, IMAGE_PX, IMAGE_PX)
    new = {name: folder / f"{name}.{unique}.npy" for name in ("pixels", "object_ids")}
    pixels = np.lib.format.open_memmap(new["pixels"], mode="w+", dtype=np.uint8, shape=(*shape, 3))
    ids = np.lib.format.open_memmap(new["object_ids"], mode="w+", dtype=np.uint8, shape=shape)
    scenes = [pool_scene(index) for index in range(num)]
    boxes = np.zeros((num, MAX_OBJECTS, 4), dtype=np.float32)
    patches = np.zeros((num, (IMAGE_PX // PATCH_PX) ** 2), dtype=np.int64)
    for i, scene in enumerate(scenes):
        rendering = render(scene, size_px=IMAGE_PX)
        pixels[i], ids[i] = rendering.pixels, rendering.object_ids
        boxes[i, : len(scene.objects)] = rendering.boxes_xyxy
        patches[i] = patch_objects(rendering.object_ids)
    pixels.flush()
    ids.flush()
    for name, path in new.items():
        path.replace(folder / f"{name}.npy")
    arrays = folder / f"arrays.{unique}.npz"
    columns: dict[str, Any] = describe(scenes) | {
        "num_objects": np.array([len(scene.objects) for scene in scenes]),
        "boxes": boxes,
        "patch_objects": patches,
    }
    np.savez(arrays, **columns)
    arrays.replace(folder / "arrays.npz")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshScenes:
    """Scenes painted for one step and never seen again."""

    scenes: list[Scene]
    pixels: np.ndarray
    """uint8 ``[B, 128, 128, 3]``."""
    object_ids: np.ndarray
    """uint8 ``[B, 128, 128]``."""
    patch_objects: np.ndarray
    """int64 ``[B, 64]``."""
    attributes: np.ndarray
    """int64 ``[B, K, 4]``."""


def paint_fresh(rng: np.random.Generator, num: int, *, max_objects: int) -> FreshScenes:
    """``num`` training scenes from beyond the pool, with at most ``max_objects`` objects each."""
    scenes: list[Scene] = []
    while len(scenes) < num:
        index = int(rng.integers(POOL_SCENES, 2**40))
        scene = draw_scene(POOL_SEED, index, level=_LEVELS[index % len(_LEVELS)])
        if len(scene.objects) <= max_objects:
            scenes.append(scene)
    painted = [render(scene, size_px=IMAGE_PX) for scene in scenes]
    return FreshScenes(
        scenes=scenes,
        pixels=np.stack([p.pixels for p in painted]),
        object_ids=np.stack([p.object_ids for p in painted]),
        patch_objects=np.stack([patch_objects(p.object_ids) for p in painted]),
        attributes=describe(scenes)["attributes"],
    )
