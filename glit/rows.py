"""Records as rows of Arrow's structs, and back; what stages and the dataset's reader share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glit.records import Box, Caption, Drop, Pair, Region, Sentence


def caption_row(caption: Caption) -> dict[str, Any]:
    """The two columns of a caption."""
    return {
        "caption": caption.text,
        "caption_source": {
            "kind": caption.kind,
            "model": caption.model,
            "revision": caption.revision,
            "prompt_sha256": caption.prompt_sha256,
            "trimmed": caption.trimmed,
        },
    }


def caption(row: Mapping[str, Any]) -> Caption:
    """The caption of a row that holds both columns."""
    return Caption(text=row["caption"], **row["caption_source"])


def sentence_row(sentence: Sentence) -> dict[str, Any]:
    """A value of the column ``sentences``."""
    return {
        "text": sentence.text,
        "char_start": sentence.char_start,
        "char_end": sentence.char_end,
        "token_start": sentence.token_start,
        "token_end": sentence.token_end,
        "in_window": sentence.in_window,
        "truncated": sentence.truncated,
    }


def sentence(value: dict[str, Any]) -> Sentence:
    """The record of a value of ``sentences``."""
    return Sentence(**value)


def region_row(region: Region) -> dict[str, Any]:
    """A value of the column ``regions``, the box flat."""
    box = region.box
    return {
        "x0": box.x0,
        "y0": box.y0,
        "x1": box.x1,
        "y1": box.y1,
        "score": region.score,
        "label": region.label,
        "source": region.source,
    }


def region(value: dict[str, Any]) -> Region:
    """The record of a value of ``regions``.

    Raises:
        ValueError: the box is empty or not finite.
    """
    box = Box(x0=value["x0"], y0=value["y0"], x1=value["x1"], y1=value["y1"])
    return Region(box=box, score=value["score"], label=value["label"], source=value["source"])


def pair_row(pair: Pair) -> dict[str, Any]:
    """A value of the column ``pairs``."""
    return {
        "sentence": pair.sentence,
        "region": pair.region,
        "similarity": pair.similarity,
        "global_wins": pair.global_wins,
        "probability": pair.probability,
    }


def pair(value: dict[str, Any]) -> Pair:
    """The record of a value of ``pairs``."""
    return Pair(**value)


def drop_row(drop: Drop) -> dict[str, Any]:
    """A value of the column ``drop``."""
    return {"reason": drop.reason, "message": drop.message, "attempt": drop.attempt}
