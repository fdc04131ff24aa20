"""Draw boxes into images, for viewers that do not draw boxes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from glit.exporters.parts import local_of

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row

MAX_SIDE = 640
"""Pixels of the longer side."""
_COLOURS = ("#1d5fd1", "#b4500b", "#147a42", "#b3256e", "#6d3fc4", "#0b7285", "#c02626", "#6b6a00")
_QUALITY = 85
_MOST_PREVIEWED = 100
_MOST_PICTURES = 3


def previewed(dataset: Dataset) -> list[int]:
    """Numbers of rows from all over the dataset, the same for the same dataset."""
    num = min(len(dataset), _MOST_PREVIEWED)
    return [number * len(dataset) // num for number in range(num)]


def card_pictures(dataset: Dataset) -> dict[str, bytes]:
    """Three pictures for a card, by path: those previewed with the most regions in pairs.

    Raises:
        ImageError: an image is damaged.
    """

    def regions(number: int) -> int:  # a row keeps its whole row group in memory
        return len({local.pair.region for local in local_of(dataset[number])})

    most = sorted(previewed(dataset), key=regions, reverse=True)[:_MOST_PICTURES]
    return {
        f"pictures/{place}.jpg": with_boxes(dataset[number])
        for place, number in enumerate(most, start=1)
    }


def with_boxes(row: Row) -> bytes:
    """Draw the regions of sentences and their numbers; JPEG of at most :data:`MAX_SIDE` pixels.

    Sentences are numbered from 1, as in :func:`numbered`.

    Raises:
        ImageError: the image is damaged.
    """
    image = Image.fromarray(row.pixels())
    image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    scale_x, scale_y = image.width / row.width, image.height / row.height
    draw = ImageDraw.Draw(image)
    line = max(2, round(max(image.size) / 220))
    font = ImageFont.load_default(size=max(11, round(max(image.size) / 40)))
    for turn, (region, sentences) in enumerate(sorted(_sentences(row).items(), reverse=True)):
        colour = _COLOURS[turn % len(_COLOURS)]
        x0, y0, x1, y1 = row.regions[region].box.xyxy
        left, top = round(x0 * scale_x), round(y0 * scale_y)
        right = max(left, round(x1 * scale_x) - 1)
        bottom = max(top, round(y1 * scale_y) - 1)
        draw.rectangle((left, top, right, bottom), outline=colour, width=line)
        text = " ".join(str(sentence + 1) for sentence in sentences)
        edges = draw.textbbox((left + line, top), text, font=font)
        draw.rectangle((left, top, edges[2] + line, edges[3] + line), fill=colour)
        draw.text((left + line, top), text, fill="white", font=font)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def numbered(row: Row) -> list[str]:
    """The sentences with the numbers of their boxes; a dash if there is no box."""
    paired = {sentence for sentences in _sentences(row).values() for sentence in sentences}
    return [
        f"{number + 1 if number in paired else '–'} {sentence.text}"
        for number, sentence in enumerate(row.sentences)
    ]


def _sentences(row: Row) -> dict[int, list[int]]:
    """Return for every region of a pair its sentences in the caption's order."""
    found: dict[int, list[int]] = {}
    for pair in row.pairs:
        if not pair.global_wins:
            found.setdefault(pair.region, []).append(pair.sentence)
    return {region: sorted(sentences) for region, sentences in found.items()}
