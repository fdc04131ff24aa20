"""Group a caption's sentences into chunks (F-CAST section 3.2 and appendix C)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glit.text.spans import Span

MOST_SENTENCES = 3
"""In a chunk, in training."""


def random_chunks(sentences: Sequence[Span], num: int, draw: np.random.Generator) -> list[Span]:
    """Exactly ``num`` chunks of one to three sentences each, in order; none without a sentence.

    Sentences beyond three times ``num`` are left out. Where there are fewer than ``num``, each is a
    chunk, and sentences drawn again fill the rest.
    """
    if not sentences:
        return []
    if len(sentences) < num:
        missing = num - len(sentences)
        return [*sentences, *(sentences[i] for i in draw.integers(len(sentences), size=missing))]
    sizes = np.ones(num, dtype=np.int64)
    for _ in range(min(len(sentences), MOST_SENTENCES * num) - num):
        sizes[draw.choice(np.flatnonzero(sizes < MOST_SENTENCES))] += 1
    return _joined(sentences, sizes.tolist())


def balanced_chunks(sentences: Sequence[Span], num: int) -> list[Span]:
    """At most ``num`` chunks, as fairly as possible, longer ones first; each sentence in one.

    The paper does not say what fewer sentences than chunks give: here, as many chunks.

    >>> balanced_chunks([(0, 1), (2, 3), (4, 5)], 2)
    [(0, 3), (4, 5)]
    """
    each, rest = divmod(len(sentences), num)
    sizes = [each + (index < rest) for index in range(num)]
    return _joined(sentences, [size for size in sizes if size])


def _joined(sentences: Sequence[Span], sizes: Sequence[int]) -> list[Span]:
    ends = np.cumsum(sizes).tolist()
    return [
        (sentences[end - size][0], sentences[end - 1][1])
        for size, end in zip(sizes, ends, strict=True)
    ]
