"""Local pairs of a dataset, a sentence or phrase and its region, for training and evaluation."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.dataset.columns import NestedColumn, RowGroup

COLUMNS = ("sentences", "regions", "pairs")
"""The columns they are made of."""


class Negative(NamedTuple):
    """A hard negative: a sentence made false, as in the column ``negatives``."""

    kind: str
    """The kind of change: ``attribute``, ``count``, ``object``, ``position`` or ``relation``; a
    language model also writes ``negation`` and ``addition``."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPair:
    """A sentence and its region, or a phrase and one of its regions."""

    sentence: str
    """The text of the sentence or phrase."""
    token_span: tuple[int, int]
    """Tokens of the caption it is made of; (0, 0) where it leaves the window."""
    box_xyxy: tuple[float, float, float, float]
    """The region, in pixels of the upright image."""
    similarity: float
    """The matcher's cosine; of a phrase the grounder's score."""
    probability: float | None = None
    """Probability that the pair is right; None in datasets without a calibration."""
    weight: float = 1.0
    """Weight of the pair in local losses."""
    mask: str = ""
    """The region's mask as COCO's compressed run lengths, at the image's size; empty where it has
    none, or the column was not read."""
    negatives: tuple[Negative, ...] = ()
    """False sentences made of the sentence, where they were read."""


def count_without_pair(path: Path) -> int:
    """Count the samples of a data file without any region."""
    number = 0
    with BoundedParquet(path) as file:
        for batch in file.iter_batches(columns=["pairs"]):
            pairs = NestedColumn(pa.chunked_array([batch.column("pairs")]))
            has_region = np.concatenate([[0], np.cumsum(~np.asarray(pairs["global_wins"], bool))])
            number += int((has_region[pairs.start[1:]] == has_region[pairs.start[:-1]]).sum())
    return number


def local_pairs(group: RowGroup, row: int) -> tuple[LocalPair, ...]:
    """The usable pairs of a row, best first: those of sentences that have a region."""
    sentences, regions, pairs = group.sentences, group.regions, group.pairs
    span = slice(int(pairs.start[row]), int(pairs.start[row + 1]))
    wins, sentence_of, region_of, cosines = (
        pairs.as_list(name)[span] for name in ("global_wins", "sentence", "region", "similarity")
    )
    probable = pairs.as_list("probability")[span]
    first_sentence, first_region = int(sentences.start[row]), int(regions.start[row])
    text, in_window = sentences.as_list("text"), sentences.as_list("in_window")
    token_start, token_end = sentences.as_list("token_start"), sentences.as_list("token_end")
    x0, y0, x1, y1 = (regions.as_list(name) for name in ("x0", "y0", "x1", "y1"))
    false, masks = _negatives(group, row), _masks(group, row)
    found = []
    for number, global_wins in enumerate(wins):
        if global_wins:
            continue
        s, r = first_sentence + sentence_of[number], first_region + region_of[number]
        found.append(
            LocalPair(
                sentence=text[s],
                token_span=(token_start[s], token_end[s]) if in_window[s] else (0, 0),
                box_xyxy=(x0[r], y0[r], x1[r], y1[r]),
                similarity=cosines[number],
                probability=None if math.isnan(probable[number]) else probable[number],
                mask=masks.get(region_of[number], ""),
                negatives=tuple(false.get(sentence_of[number], ())),
            )
        )
    return tuple(found)


def phrase_pairs(group: RowGroup, row: int) -> tuple[LocalPair, ...]:
    """The phrases of a row and the regions in which they were found, best score first."""
    sentences, regions = group.sentences, group.regions
    phrases, groundings = group.phrases, group.groundings
    first_phrase, first_region = int(phrases.start[row]), int(regions.start[row])
    in_window, first_sentence = sentences.as_list("in_window"), int(sentences.start[row])
    masks = _masks(group, row)
    found = []
    for at in groundings.span(row):
        p = first_phrase + groundings.as_list("phrase")[at]
        r = first_region + groundings.as_list("region")[at]
        within = in_window[first_sentence + phrases.as_list("sentence")[p]]
        token_start, token_end = (phrases.as_list(f"token_{end}")[p] for end in ("start", "end"))
        x0, y0, x1, y1 = (regions.as_list(name)[r] for name in ("x0", "y0", "x1", "y1"))
        found.append(
            LocalPair(
                sentence=phrases.as_list("text")[p],
                token_span=(token_start, token_end) if within else (0, 0),
                box_xyxy=(x0, y0, x1, y1),
                similarity=groundings.as_list("score")[at],
                mask=masks.get(r - first_region, ""),
            )
        )
    return tuple(sorted(found, key=lambda pair: -pair.similarity))


def _masks(group: RowGroup, row: int) -> dict[int, str]:
    """The masks of a row by the number of their region."""
    column = group.masks
    if column is None:
        return {}
    regions, counts = column.as_list("region"), column.as_list("counts")
    return {regions[at]: counts[at] for at in column.span(row)}


def _negatives(group: RowGroup, row: int) -> dict[int, list[Negative]]:
    """The false sentences of a row by the number of their sentence."""
    column, found = group.negatives, defaultdict(list)
    if column is not None:
        kinds, texts, sentences = (column.as_list(key) for key in ("kind", "text", "sentence"))
        for at in column.span(row):
            found[sentences[at]].append(Negative(kinds[at], texts[at]))
    return found
