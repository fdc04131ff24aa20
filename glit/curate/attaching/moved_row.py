"""A row of a dataset in the frame of the picture that was found for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glit.curate.attaching.placement import Placement
from glit.data import rows
from glit.data.records import GRID_SOURCES, Drop
from glit.data.rle import compress_rle, decode_rle, encode_rle, read_rle
from glit.data.schema import CAPTION, NEGATIVE
from glit.dataset.by_hand import by_hand_of, rule_of, with_by_hand
from glit.rules.pairing import Pairing

LEAST_SHOWN = 0.5
"""Share of a region's area that a cut picture must show, or the region goes."""
_LEAST_SIDE = 1.0
_SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)
_ALL_SIDES = re.compile(
    r"\b(left|right|top|bottom|above|below|beneath|under|over|upper|lower)\b", re.IGNORECASE
)


def wrong_side(caption: str, placement: Placement) -> str:
    """Return the first word of an English caption that is false of a mirrored or turned picture;
    empty if there is none.

    >>> mirrored = Placement(mirrored=True, left=0, top=0, right=9, bottom=9)
    >>> wrong_side("A cup left of a jug.", mirrored)
    'left'
    """
    if placement.is_upright:
        return ""
    found = (_ALL_SIDES if placement.turned else _SIDES).search(caption)
    return found[0] if found else ""


def moved_row(
    row: dict[str, Any], placement: Placement, width: int, height: int, pairings: Sequence[Pairing]
) -> dict[str, Any] | Drop:
    """Return a row in the frame of the found picture.

    A region of which the picture shows less than half goes; a sentence that had it has none then.

    Args:
        row: the columns of a data file by name, as Python values; it is not changed.
        placement: of the found picture.
        width: of it.
        height: of it.
        pairings: the rules that chose the dataset's pairs.

    Returns:
        The new row; a drop if a word of its caption is false of the picture, or no region is left.
    """
    texts = [row["caption"], *(each["text"] for each in _values(row, "captions", CAPTION))]
    if word := next(filter(None, (wrong_side(text, placement) for text in texts)), ""):
        said = "mirrored" if placement.mirrored else f"turned by {placement.turned} degrees"
        return Drop(
            reason="wrong_side", message=f"the picture is {said}, and a caption says {word!r}"
        )
    kept, boxes = _shown_regions(row, placement, width, height)
    if row["regions"] and not kept:
        return Drop(reason="no_region", message="the picture shows no region's half")
    place = {old: new for new, old in enumerate(kept)}
    changed = {**row, "width": width, "height": height}
    if negatives := _values(row, "negatives", NEGATIVE):
        # what is false of a picture may be true of its mirror image
        changed["negatives"] = [n for n in negatives if not wrong_side(n["text"], placement)]
    moved = not placement.is_upright or len(kept) < len(row["regions"])
    changed["regions"] = [
        _moved_region(row["regions"][old], box, moved) for old, box in zip(kept, boxes, strict=True)
    ]
    for name in ("masks", "groundings"):
        if row.get(name):
            changed[name] = [
                {**each, "region": place[each["region"]]}
                for each in row[name]
                if each["region"] in place
            ]
    if changed.get("masks"):
        changed["masks"] = [
            {**each, "counts": _moved_mask(each["counts"], row, placement, width, height)}
            for each in changed["masks"]
        ]
    if len(kept) == len(row["regions"]):
        return changed
    number = len(row["sentences"])
    for name in ("similarity", "phrase_similarity", "agreement"):
        if row.get(name) is not None:
            matrix = np.array(row[name], np.float32).reshape(number, -1)
            changed[name] = matrix[:, kept].ravel()
    return {**changed, **_paired_again(row, changed, place, pairings)}


def _shown_regions(
    row: dict[str, Any], placement: Placement, width: int, height: int
) -> tuple[list[int], np.ndarray]:
    """Return which regions a found picture shows, and their boxes there, cut at its edges."""
    boxes = np.array([[r["x0"], r["y0"], r["x1"], r["y1"]] for r in row["regions"]], float)
    moved = placement.moved(boxes.reshape(-1, 4), width, height)
    inside = moved.clip(0, [width, height, width, height])
    sides, whole = (each[:, 2:] - each[:, :2] for each in (inside, moved))
    is_shown = sides.prod(axis=1) >= LEAST_SHOWN * whole.prod(axis=1)
    kept = np.flatnonzero(is_shown & (sides >= _LEAST_SIDE).all(axis=1))
    return kept.tolist(), inside[kept]


def _values(row: dict[str, Any], name: str, kind: pa.StructType) -> list[dict[str, Any]]:
    """The values of an optional column; none if it is of somebody's own stage."""
    found = row.get(name) or []
    ours = isinstance(found, list) and all(
        isinstance(each, dict) and [*each] == kind.names for each in found
    )
    return found if ours else []


def _moved_region(region: dict[str, Any], box: np.ndarray, moved: bool) -> dict[str, Any]:
    """A region with another box; the label of a cell of the grid names its place, which is another
    now."""
    corners = dict(zip(("x0", "y0", "x1", "y1"), map(float, box), strict=True))
    label = "" if moved and region["source"] in GRID_SOURCES else region["label"]
    return {**region, **corners, "label": label}


def _moved_mask(
    counts: str, row: dict[str, Any], placement: Placement, width: int, height: int
) -> str:
    """A mask in the frame of the found picture: each pixel's nearest."""
    tall, wide = row["height"], row["width"]
    mask = decode_rle(read_rle(counts, height=tall, width=wide), height=tall, width=wide)
    across, down = placement.undone_size(width, height)
    sx, sy = placement.scale(width, height)
    x = np.floor((np.arange(across) + 0.5) / sx + placement.left).astype(int)
    y = np.floor((np.arange(down) + 0.5) / sy + placement.top).astype(int)
    shown = ((x >= 0) & (x < wide))[None] & ((y >= 0) & (y < tall))[:, None]
    found = mask[y.clip(0, tall - 1)[:, None], x.clip(0, wide - 1)[None]] & shown
    if placement.mirrored:
        found = found[:, ::-1]
    return compress_rle(encode_rle(np.rot90(found, -placement.turned // 90)))


def _paired_again(
    row: dict[str, Any], changed: dict[str, Any], place: dict[int, int], pairings: Sequence[Pairing]
) -> dict[str, Any]:
    """The pairs among the regions that are left: each sentence keeps its region, or has none."""
    shown = {p["sentence"]: -1 if p["global_wins"] else p["region"] for p in row["pairs"]}
    wanted = {sentence: place.get(region, -1) for sentence, region in shown.items()}
    scores = rows.scores(changed, len(row["sentences"]))
    regions = tuple(map(rows.region, changed["regions"]))
    sentences = tuple(map(rows.sentence, row["sentences"]))
    by_rule = rule_of(row, pairings)(scores, regions, sentences)
    chosen = {pair.sentence: -1 if pair.global_wins else pair.region for pair in by_rule}
    before = {each["sentence"]: bool(each["scored"]) for each in by_hand_of(row)}
    decided = [
        {"sentence": s, "region": region, "scored": before.get(s, True)}
        for s, region in sorted(wanted.items())
        if s in before or chosen.get(s) != region
    ]
    pairs = with_by_hand(by_rule, decided, scores)
    return {"by_hand": decided, "pairs": [rows.pair_row(pair) for pair in pairs]}
