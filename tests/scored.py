"""Scores and regions of a made-up sample."""

from __future__ import annotations

import numpy as np

from glit.records import Box, Region, Scores


def regions(*sources: str) -> tuple[Region, ...]:
    return tuple(
        Region(box=Box(x0=k, y0=0, x1=k + 1, y1=1), score=1.0, label="", source=source)
        for k, source in enumerate(sources)
    )


def scored(similarity, whole=None, phrases=None) -> Scores:
    similarity = np.array(similarity, dtype=np.float32)
    whole = np.zeros(len(similarity)) if whole is None else np.array(whole)
    return Scores(
        similarity=similarity,
        image_similarity=whole.astype(np.float32),
        phrase_similarity=None if phrases is None else np.array(phrases, dtype=np.float32),
    )
