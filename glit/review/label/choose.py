"""Choose the pairs to judge: one per drawn image."""

from __future__ import annotations

import numpy as np

from glit.data.records import Pair
from glit.dataset.manifest import require_regions
from glit.dataset.reader import Dataset


def choose(dataset: Dataset, *, num: int, seed: int) -> list[int]:
    """The numbers of the rows to judge, at most ``num``.

    The same dataset and seed give the same rows; with a larger ``num`` the first stay.

    Raises:
        InputError: it has captions alone.
    """
    require_regions(dataset.manifest, dataset.path, wanted_by="glit pairs label shows")
    return np.random.default_rng(seed).permutation(len(dataset))[:num].tolist()


def pair_of(pairs: tuple[Pair, ...], *, number: int, seed: int) -> Pair:
    """The pair of row ``number`` to judge, drawn uniformly over its sentences."""
    return pairs[int(np.random.default_rng([seed, number]).integers(len(pairs)))]
