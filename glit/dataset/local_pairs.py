"""Local pairs of a dataset: a sentence and its region, as training and evaluation use them."""

from __future__ import annotations

from dataclasses import dataclass

from glit.dataset.columns import RowGroup

COLUMNS = ("sentences", "regions", "pairs")
"""The columns they are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPair:
    """A sentence and its region."""

    sentence: str
    """The sentence's text."""
    token_span: tuple[int, int]
    """Tokens of the caption it is made of; (0, 0) where it leaves the window."""
    box_xyxy: tuple[float, float, float, float]
    """The region, in pixels of the upright image."""
    similarity: float
    """The matcher's cosine."""
    probability: float | None = None
    """How probable it is that the pair is right; None in datasets without a calibration."""


def local_pairs(group: RowGroup, row: int) -> tuple[LocalPair, ...]:
    """The usable pairs of a row, best first: those of sentences that have a region."""
    sentences, regions, pairs = group.sentences, group.regions, group.pairs
    first_sentence, first_region = sentences.start[row], regions.start[row]
    found = []
    for at in pairs.span(row):
        if pairs["global_wins"][at]:
            continue
        sentence = first_sentence + int(pairs["sentence"][at])
        region = first_region + int(pairs["region"][at])
        span = (int(sentences["token_start"][sentence]), int(sentences["token_end"][sentence]))
        found.append(
            LocalPair(
                sentence=sentences["text"][sentence],
                token_span=span if sentences["in_window"][sentence] else (0, 0),
                box_xyxy=(
                    float(regions["x0"][region]),
                    float(regions["y0"][region]),
                    float(regions["x1"][region]),
                    float(regions["y1"][region]),
                ),
                similarity=float(pairs["similarity"][at]),
                probability=pairs.optional("probability", at),
            )
        )
    return tuple(found)
