"""Convert records to Arrow struct rows and back, for stages and the dataset's reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glit.data.records import Box, Caption, Drop, Pair, Region, Scores, Sentence, Token


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


def token_rows(caption: Caption) -> list[dict[str, Any]] | None:
    """The value of the column ``caption_tokens``."""
    if caption.tokens is None:
        return None
    return [{"char_end": each.char_end, "logprob": each.logprob} for each in caption.tokens]


def tokens(values: list[dict[str, Any]] | None) -> tuple[Token, ...] | None:
    """The records of a value of ``caption_tokens``."""
    return None if values is None else tuple(Token(**value) for value in values)


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
        "mean_logprob": sentence.mean_logprob,
        "min_logprob": sentence.min_logprob,
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


_MATRICES = ("similarity", "phrase_similarity", "agreement")


def scores_row(scores: Scores) -> dict[str, Any]:
    """The columns of a sample's scores; matrices a row of regions after the other."""
    flat = {name: getattr(scores, name) for name in _MATRICES}
    found = {name: None if value is None else value.ravel() for name, value in flat.items()}
    return {**found, "image_similarity": scores.image_similarity}


def scores(row: Mapping[str, Any], num_sentences: int) -> Scores:
    """The scores of a row; what it does not hold is None, and of captions alone the whole image's
    cosines are -1."""
    found: dict[str, Any] = {}
    for name in _MATRICES:
        value = row.get(name)
        if value is not None:
            value = np.array(value, dtype=np.float32).reshape(num_sentences, -1)
        found[name] = value
    whole = row.get("image_similarity")
    if whole is None:
        whole = np.full(num_sentences, -1)
    return Scores(image_similarity=np.array(whole, dtype=np.float32), **found)


def pair_row(pair: Pair) -> dict[str, Any]:
    """A value of the column ``pairs``."""
    return {
        "sentence": pair.sentence,
        "region": pair.region,
        "similarity": pair.similarity,
        "global_wins": pair.global_wins,
        "probability": pair.probability,
        "support": pair.support,
    }


def pair(value: dict[str, Any]) -> Pair:
    """The record of a value of ``pairs``."""
    return Pair(**value)


def drop_row(drop: Drop) -> dict[str, Any]:
    """A value of the column ``drop``."""
    return {"reason": drop.reason, "message": drop.message, "attempt": drop.attempt}
