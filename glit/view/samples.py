"""Convert dataset rows to the form that the page shows.

A caption goes over in parts, each with the number of its sentence, because a browser counts
characters otherwise than Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from glit.data.records import Pair, Region
from glit.data.rle import decode_rle, read_rle
from glit.dataset.row import Row, captions_of, is_grounded, masks_of

MOST_REGIONS = 100
"""Most regions of an image, unless more are in pairs; those come first, then those that some
sentence is most similar to."""
MASK_CELLS = 48
"""Cells a side in which the page draws a mask inside its box."""


def sample(row: Row, *, number: int, image: str) -> dict[str, Any]:
    """A row as JSON.

    Args:
        row: with or without its image.
        number: of the row in the dataset.
        image: address of the picture.
    """
    shown = _shown(row)
    place = {region: index for index, region in enumerate(shown)}
    whole, masks = row.image_similarity, masks_of(row)
    return {
        "n": number,
        "id": row.sample_id,
        "path": row.source_path,
        "w": row.width,
        "h": row.height,
        "image": image,
        "source": {"kind": row.caption.kind, "model": row.caption.model,
                   "trimmed": row.caption.trimmed},
        "parts": _parts(row),
        **({"others": others} if (others := _other_captions(row)) else {}),
        **({"phrases": _phrases(row, place)} if is_grounded(row) else {}),
        "flags": [
            {"in_window": s.in_window, "truncated": s.truncated,
             "tokens": [s.token_start, s.token_end]}
            for s in row.sentences
        ],
        "regions": [_region(row, index, masks.get(index)) for index in shown],
        "numbers": shown,
        "hidden": len(row.regions) - len(shown),
        "pairs": [_pair(pair, place) for pair in row.pairs],
        "best": _best(row),
        "matrix": [_numbers(row.similarity[s, shown]) for s in range(len(row.sentences))],
        "whole": None if whole is None else _numbers(whole),
    }  # fmt: skip


def _best(row: Row) -> float | None:
    """The exact cosine of the best pair, to filter by."""
    found = [float(pair.similarity) for pair in row.pairs if not pair.global_wins]
    return max(filter(math.isfinite, found), default=None)


def _shown(row: Row) -> list[int]:
    """Numbers of the regions that the page holds, rising."""
    if len(row.regions) <= MOST_REGIONS:
        return list(range(len(row.regions)))
    chosen = list(dict.fromkeys(pair.region for pair in row.pairs))
    best = np.argsort(-row.similarity.max(axis=0), kind="stable")
    return sorted(list(dict.fromkeys([*chosen, *best.tolist()]))[: max(MOST_REGIONS, len(chosen))])


def _parts(row: Row) -> list[list[Any]]:
    """The caption in pieces: text, and the number of the sentence it is or -1."""
    text, at, parts = row.caption.text, 0, []
    for number, sentence in enumerate(row.sentences):
        if sentence.char_start > at:
            parts.append([text[at : sentence.char_start], -1])
        parts.append([text[sentence.char_start : sentence.char_end], number])
        at = sentence.char_end
    if at < len(text):
        parts.append([text[at:], -1])
    return parts


def _other_captions(row: Row) -> list[list[str]]:
    """Kinds and texts of the captions beside the one that the page shows."""
    found = captions_of(row)
    return [[each["kind"], each["text"]] for each in found if each["text"] != row.caption.text]


def _phrases(row: Row, place: Mapping[int, int]) -> list[list[list[Any]]]:
    """Every sentence in pieces: text, and the regions that its phrase was found in, or null."""
    found: dict[int, list[int]] = {}
    for each in row.extra["groundings"]:
        if each["region"] in place:
            found.setdefault(each["phrase"], []).append(place[each["region"]])
    pieces: list[list[list[Any]]] = []
    for number, sentence in enumerate(row.sentences):
        at, own = sentence.char_start, []
        for index, phrase in enumerate(row.extra["phrases"]):
            if phrase["sentence"] == number and phrase["char_start"] >= at and index in found:
                own.append([row.caption.text[at : phrase["char_start"]], None])
                own.append([phrase["text"], found[index]])
                at = phrase["char_end"]
        pieces.append([*own, [row.caption.text[at : sentence.char_end], None]])
    return pieces


def _region(row: Row, index: int, mask: str | None) -> dict[str, Any]:
    region = row.regions[index]
    return {
        **({"mask": _inside(row, region, mask)} if mask else {}),
        "box": [round(value, 2) for value in region.box.xyxy],
        "score": _number(region.score),
        "label": region.label,
        "source": region.source,
    }


def _inside(row: Row, region: Region, counts: str) -> str:
    """A mask inside its box as an SVG path: rows of a grid of :data:`MASK_CELLS` cells a side."""
    runs = read_rle(counts, height=row.height, width=row.width)
    mask = decode_rle(runs.tolist(), height=row.height, width=row.width)
    cells = (np.arange(MASK_CELLS) + 0.5) / MASK_CELLS
    x0, y0, x1, y1 = region.box.xyxy
    at_y = np.clip(y0 + cells * (y1 - y0), 0, row.height - 1).astype(int)
    at_x = np.clip(x0 + cells * (x1 - x0), 0, row.width - 1).astype(int)
    path = []
    for y, line in enumerate(np.pad(mask[at_y[:, None], at_x], ((0, 0), (1, 1))).astype(np.int8)):
        edges = np.flatnonzero(np.diff(line))
        path += [f"M{a} {y}h{b - a}v1H{a}z" for a, b in edges.reshape(-1, 2).tolist()]
    return "".join(path)


def _pair(pair: Pair, place: dict[int, int]) -> dict[str, Any]:
    return {
        "s": pair.sentence,
        "r": place[pair.region],
        "sim": _number(pair.similarity),
        "p": None if pair.probability is None else _number(pair.probability),
        "t": None if pair.support is None else _number(pair.support),
        "none": pair.global_wins,
    }


def _numbers(values: Iterable[float] | Sequence[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float) -> float | None:
    """Four decimals; null where it is no number, which JSON has no other word for."""
    return round(float(value), 4) if math.isfinite(value) else None
