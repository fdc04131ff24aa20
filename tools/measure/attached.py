"""Are pictures found again, and near twins not? ``python -m tools.measure.attached PICTURES``.

Every picture of a folder, or drawn scene, is published as a thumbnail, then changed in each of
fourteen ways and in random pairs of them, and looked for among all thumbnails. The first table has
the share found, and the IoU of random boxes that were moved with the right ones. Then near twins
(``near_twins.py``) are compared with their originals, unchanged or changed in such ways: none of
them may be taken.
"""

from __future__ import annotations

import argparse
import io
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from glit.curate.attaching.align import Aligned, align
from glit.curate.attaching.annotations import thumbnail
from glit.curate.attaching.lookup import TABLES, Index
from glit.curate.attaching.picture import Picture, picture_of, require_opencv
from glit.data.geometry import iou
from glit.images import decode
from glit.runtime.tables import Table, markdown
from glit.scenes.layout import draw_scene
from glit.scenes.render import render
from tools.measure.console import ended, say
from tools.measure.near_twins import (
    GRAIN,
    GRAIN_BLUR,
    HUES,
    differs,
    is_grey,
    part_twins,
    scene_twins,
)

Boxes = np.ndarray
Change = Callable[[Image.Image, random.Random], tuple[Image.Image, Callable[[Boxes], Boxes]]]
_LONGEST = 1024
_SLACK = 0.01
_TWIN = 480
"""Longest side, in pixels, of photographs that near twins are made of."""
_SCENE, _SCENES_SEED = 256, 9


def _saved(image: Image.Image, quality: int = 85, kind: str = "JPEG") -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def _encoded(quality: int, kind: str = "JPEG") -> Change:
    return lambda image, _: (_saved(image, quality, kind), lambda boxes: boxes)


def _toned(change: Callable[[Image.Image], Image.Image]) -> Change:
    return lambda image, _: (_saved(change(image)), lambda boxes: boxes)


def _resized(across: float, down: float) -> Change:
    def changed(image: Image.Image, _: random.Random) -> Any:
        width, height = image.size
        size = (max(1, round(width * across)), max(1, round(height * down)))
        scale = np.array([size[0] / width, size[1] / height] * 2)
        return _saved(image.resize(size, Image.Resampling.BICUBIC)), lambda boxes: boxes * scale

    return changed


def _cut(share: float) -> Change:
    def changed(image: Image.Image, draw: random.Random) -> Any:
        width, height = (max(1, round(side * share**0.5)) for side in image.size)
        x, y = draw.randint(0, image.width - width), draw.randint(0, image.height - height)
        by = np.array([x, y, x, y])
        return _saved(image.crop((x, y, x + width, y + height))), lambda boxes: boxes - by

    return changed


def _mirrored(image: Image.Image, _: random.Random) -> Any:
    width = image.width
    return _saved(ImageOps.mirror(image)), lambda b: np.stack(
        [width - b[:, 2], b[:, 1], width - b[:, 0], b[:, 3]], axis=1
    )


def _turned(quarters: int) -> Change:
    def changed(image: Image.Image, _: random.Random) -> Any:
        pixels = np.ascontiguousarray(np.rot90(np.asarray(image), -quarters))
        size = image.size

        def moved(boxes: Boxes) -> Boxes:
            wide, tall = size
            for _ in range(quarters):
                boxes = np.stack(
                    [tall - boxes[:, 3], boxes[:, 0], tall - boxes[:, 1], boxes[:, 2]], axis=1
                )
                wide, tall = tall, wide
            return boxes

        return _saved(Image.fromarray(pixels)), moved

    return changed


def _padded(image: Image.Image, _: random.Random) -> Any:
    side = round(1.2 * max(image.size))
    canvas = Image.new("RGB", (side, side))
    x, y = (side - image.width) // 2, (side - image.height) // 2
    canvas.paste(image, (x, y))
    return _saved(canvas), lambda boxes: boxes + np.array([x, y, x, y])


CHANGES: dict[str, Change] = {
    "JPEG, quality 40": _encoded(40),
    "WebP, quality 50": _encoded(50, "WEBP"),
    "half the size": _resized(0.5, 0.5),
    "1.5 times the size": _resized(1.5, 1.5),
    "squeezed to 3/4": _resized(0.75, 1),
    "80 % of the area cut out": _cut(0.8),
    "50 % of the area cut out": _cut(0.5),
    "mirrored": _mirrored,
    "turned by 90°": _turned(1),
    "turned by 180°": _turned(2),
    "padded to a square": _padded,
    "30 % darker": _toned(lambda image: ImageEnhance.Brightness(image).enhance(0.7)),
    "grey": _toned(lambda image: image.convert("L").convert("RGB")),
    "more contrast, less colour": _toned(
        lambda image: ImageEnhance.Color(ImageEnhance.Contrast(image).enhance(1.3)).enhance(0.6)
    ),
}


def _pair(draw: random.Random) -> Change:
    first, second = draw.sample([*CHANGES.values()], 2)

    def changed(image: Image.Image, draw: random.Random) -> Any:
        once, moved = first(image, draw)
        twice, moved_again = second(once, draw)
        return twice, lambda boxes: moved_again(moved(boxes))

    return changed


class Gallery:
    """Published pictures, to look others up in."""

    def __init__(self, images: list[Image.Image]) -> None:
        self._pictures = [_published(each) for each in images]
        self._index = Index(duckdb.connect().execute(TABLES), len(images))
        self._index.add(range(len(images)), self._pictures)

    def find(self, image: Image.Image) -> dict[int, Aligned]:
        """Return the published pictures that a picture is taken for, and its places there."""
        found = picture_of(np.asarray(image))
        proposed = self._index.propose([0], [found])
        tried = {n: align(self._pictures[n], found) for _, n in proposed}
        return {n: each for n, each in tried.items() if each is not None}


def _published(image: Image.Image) -> Picture:
    return picture_of(decode(thumbnail(np.asarray(image))), image.size)


def _boxes(size: tuple[int, int], draw: random.Random) -> Boxes:
    width, height = size
    made = []
    for _ in range(10):
        wide, tall = (draw.uniform(0.1, 0.5) * min(size) for _ in range(2))
        x, y = draw.uniform(0, width - wide), draw.uniform(0, height - tall)
        made.append([x, y, x + wide, y + tall])
    return np.array(made)


def find_changed(images: list[Image.Image], *, pairs: int, seed: int) -> Table:
    """Change pictures, look them up among all, and move boxes with them.

    Args:
        images: the published pictures.
        pairs: random pairs of changes a picture.
        seed: of random choices.
    """
    gallery = Gallery(images)
    rows = []
    draw = random.Random(seed)
    changes = [*CHANGES.items(), *(("two of these", None),) * (pairs > 0)]
    for name, change in changes:
        found = others = tried = 0
        overlaps: list[float] = []
        for number, image in enumerate(images * (pairs if change is None else 1)):
            number %= len(images)
            changed, moved = (change or _pair(draw))(image, draw)
            taken = gallery.find(changed)
            tried += 1
            others += any(n != number for n in taken)
            if (aligned := taken.get(number)) is None:
                continue
            found += 1
            undone = aligned.placement.undone_size(*changed.size)
            place = aligned.placement.snapped(image.size, undone, _SLACK * max(image.size))
            boxes = _boxes(image.size, draw)
            both = iou(place.moved(boxes, *changed.size), moved(boxes))
            overlaps += np.diag(both).tolist()
        low, middle = np.percentile(overlaps or [0], [5, 50])
        rows.append([name, f"{found} of {tried}", f"{found / tried:.3f}", f"{middle:.3f}",
                     f"{low:.3f}", str(others)])  # fmt: skip
        say(" | ".join(rows[-1]))
    heads = ["change", "found", "share", "IoU, median", "IoU, 5 %", "also taken for another"]
    return Table(heads=heads, rows=rows, words=1)


Twins = Callable[[int, random.Random], Iterator[tuple[str, Image.Image]]]


def take_twins(
    images: list[Image.Image], twins: Twins, *, wanted: int, seed: int, save: Path | None
) -> Table:
    """Compare near twins with their originals.

    A twin is compared as it is, after one of the changes, or after two. It counts if it differs
    visibly from the original after the same change; other hues of what was made grey do not.

    Args:
        images: the published pictures.
        twins: makes near twins of the picture of a number.
        wanted: how many to compare.
        seed: of random choices.
        save: folder for those that are taken for their original.
    """
    tried: dict[str, list[bool]] = defaultdict(list)
    draw = random.Random(seed)
    published = [_published(each) for each in images]
    total = taken = 0
    for number in cycle(draw.sample(range(len(images)), len(images))):
        for kind, twin in twins(number, draw):
            name = draw.choice(["none", "none", "one", "two"])
            change = {
                "none": _unchanged, "one": draw.choice([*CHANGES.values()]), "two": _pair(draw)
            }[name]  # fmt: skip
            same = draw.random()  # so that both are cut alike
            original, _ = change(images[number], random.Random(same))
            changed, _ = change(twin, random.Random(same))
            blur = {"blur": GRAIN_BLUR} if kind == GRAIN else {}
            if not differs(original, changed, **blur) or (kind == HUES and is_grey(changed)):
                continue
            aligned = align(published[number], picture_of(np.asarray(changed)))
            tried[kind].append(aligned is not None)
            total += 1
            if aligned is not None:
                taken += 1
                say(f"taken: {kind}, changed by {name}, {aligned}")
                if save is not None:
                    pair = np.concatenate([np.asarray(original), np.asarray(changed)], axis=1)
                    Image.fromarray(pair).save(save / f"{seed}-{total}.png")
            if total % 500 == 0:
                say(f"{total} near twins, {taken} taken")
            if total >= wanted:
                rows = [[k, str(len(each)), str(sum(each))] for k, each in sorted(tried.items())]
                rows.append(["all", str(total), str(taken)])
                return Table(heads=["near twin", "compared", "taken"], rows=rows, words=1)
    raise AssertionError("there is a picture")


def _unchanged(image: Image.Image, _: random.Random) -> Any:
    return image, lambda boxes: boxes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.attached", description=__doc__)
    add = parser.add_argument
    add("pictures", type=Path, nargs="?", help="a folder of pictures")
    add("--scenes", type=int, default=0, help="hard scenes to draw instead")
    add("--most", type=int, default=300, help="pictures to take")
    add("--pairs", type=int, default=2, help="random pairs of changes a picture")
    add("--changes", action=argparse.BooleanOptionalAction, default=True)
    add("--twins", type=int, default=5_000, help="near twins to compare")
    add("--save", type=Path, help="a folder for twins that are taken for their original")
    add("--seed", type=int, default=0)
    given = parser.parse_args()
    require_opencv().setNumThreads(1)
    images, small, scenes = [], [], []
    if given.pictures is None:
        seed = _SCENES_SEED + given.seed
        scenes = [draw_scene(seed, n, level="hard") for n in range(given.scenes)]
        images = [Image.fromarray(render(each, size_px=_SCENE).pixels) for each in scenes]
        small = images
    else:
        for path in sorted(given.pictures.rglob("*"))[: given.most]:
            if path.is_file():
                image = Image.fromarray(decode(path.read_bytes()))
                image.thumbnail((_LONGEST, _LONGEST))
                images.append(image)
                small.append(image.copy())
                small[-1].thumbnail((_TWIN, _TWIN))
    say(f"{len(images)} pictures")

    def twins(number: int, draw: random.Random) -> Iterator[tuple[str, Image.Image]]:
        yield from part_twins(small[number], small[:number] + small[number + 1 :], draw)
        if scenes:
            yield from scene_twins(scenes[number], draw, size_px=_SCENE)

    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
    tables = []
    if given.changes:
        tables.append(find_changed(images, pairs=given.pairs, seed=given.seed))
    if given.twins:
        tables.append(
            take_twins(small, twins, wanted=given.twins, seed=given.seed, save=given.save)
        )
    print(markdown(tables))


if __name__ == "__main__":
    ended(main)
