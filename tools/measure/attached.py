"""Are pictures found again? ``python -m tools.measure.attached PICTURES``.

Every picture of a folder is published as a thumbnail, then changed in each of fourteen ways and in
random pairs of them, and looked for among all thumbnails. Told are the share found, and the IoU of
random boxes that were moved with the right ones. Then near twins are made (a part in other colours,
a part replaced by another of the picture, other hues) and compared with their originals: none of
them may be taken.
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from glit.attaching.align import Aligned, Looks, align, looks_both_ways, looks_of
from glit.attaching.features import require_opencv
from glit.attaching.lookup import Index, describe_found, describe_published
from glit.attaching.pictures import thumbnail
from glit.data.geometry import iou
from glit.images import decode
from glit.runtime.tables import Table, markdown
from tools.measure.console import ended, say

Boxes = np.ndarray
Change = Callable[[Image.Image, random.Random], tuple[Image.Image, Callable[[Boxes], Boxes]]]
_LONGEST = 1600
_SLACK = 0.01


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


def _twins(image: Image.Image, draw: random.Random) -> Iterator[tuple[str, Image.Image]]:
    """Pictures that differ visibly in a part of 1 % or more, or in hue."""
    width, height = image.size
    side = draw.uniform(0.12, 0.25) * min(width, height)
    x, y = int(draw.uniform(0, width - side)), int(draw.uniform(0, height - side))
    part = image.crop((x, y, int(x + side), int(y + side)))
    one, two = image.copy(), image.copy()
    red, green, blue = part.split()
    one.paste(Image.merge("RGB", (green, blue, red)), (x, y))
    ax, ay = draw.randint(0, width - part.width), draw.randint(0, height - part.height)
    two.paste(image.crop((ax, ay, ax + part.width, ay + part.height)), (x, y))
    red, green, blue = image.split()
    whole = Image.merge("RGB", (green, blue, red))
    for name, twin in (("part in other colours", one), ("part replaced", two), ("hues", whole)):
        apart = np.abs(np.asarray(twin, np.int16) - np.asarray(image)).mean(2)
        if (apart > 15).mean() >= 0.01:
            yield name, twin


class Gallery:
    """Published pictures, to look others up in."""

    def __init__(self, images: list[Image.Image]) -> None:
        self._looks: list[Looks] = []
        told = []
        for image in images:
            small = looks_of(decode(thumbnail(np.asarray(image))), image.size)
            told.append(describe_published(small))
            self._looks.append(small)
        self._index = Index(told)

    def find(self, image: Image.Image) -> dict[int, Aligned]:
        """Return the published pictures that a picture is taken for, and its places there."""
        looks, mirrored = looks_both_ways(np.asarray(image))
        proposed = self._index.propose(describe_found(looks, mirrored))
        tried = {n: align(self._looks[n], looks, mirrored) for n in proposed}
        return {n: each for n, each in tried.items() if each is not None}

    def is_taken(self, image: Image.Image, number: int) -> bool:
        """Return whether a picture is taken for a published one."""
        looks, mirrored = looks_both_ways(np.asarray(image))
        return align(self._looks[number], looks, mirrored) is not None


def _boxes(size: tuple[int, int], draw: random.Random) -> Boxes:
    width, height = size
    made = []
    for _ in range(10):
        wide, tall = (draw.uniform(0.1, 0.5) * min(size) for _ in range(2))
        x, y = draw.uniform(0, width - wide), draw.uniform(0, height - tall)
        made.append([x, y, x + wide, y + tall])
    return np.array(made)


def measure(images: list[Image.Image], *, pairs: int, twins: int, seed: int) -> str:
    """Change, find and compare; the tables as Markdown."""
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
    return markdown([Table(heads=heads, rows=rows, words=1), _false(gallery, images, twins, draw)])


def _false(gallery: Gallery, images: list[Image.Image], wanted: int, draw: random.Random) -> Table:
    tried: dict[str, list[bool]] = {}
    changes = [CHANGES[name] for name in ("JPEG, quality 40", "padded to a square", "mirrored")]
    total = 0
    while total < wanted:
        for number, image in enumerate(images):
            for name, twin in _twins(image, draw):
                changed, _ = draw.choice(changes)(twin, draw)
                tried.setdefault(name, []).append(gallery.is_taken(changed, number))
                total += 1
            if total >= wanted:
                break
        say(f"{total} near twins, {sum(map(sum, tried.values()))} taken")
    rows = [[name, str(len(each)), str(sum(each))] for name, each in tried.items()]
    return Table(heads=["near twin", "compared", "taken"], rows=rows, words=1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.attached", description=__doc__)
    add = parser.add_argument
    add("pictures", type=Path, help="a folder of pictures")
    add("--most", type=int, default=300, help="pictures to take")
    add("--pairs", type=int, default=2, help="random pairs of changes a picture")
    add("--twins", type=int, default=10_000, help="near twins to compare")
    add("--seed", type=int, default=0)
    given = parser.parse_args()
    require_opencv().setNumThreads(1)
    images = []
    for path in sorted(given.pictures.rglob("*"))[: given.most]:
        if path.is_file():
            image = Image.fromarray(decode(path.read_bytes()))
            image.thumbnail((_LONGEST, _LONGEST))
            images.append(image)
    say(f"{len(images)} pictures")
    print(measure(images, pairs=given.pairs, twins=given.twins, seed=given.seed))


if __name__ == "__main__":
    ended(main)
