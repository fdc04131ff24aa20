"""Mix one or several datasets, and define the order of their samples.

Every dataset is an endless stream: its samples in the order of ``glit.training.order``, then
again in another. Of a dataset of weight w an epoch takes the next w times its size, so that
weight 1 gives every sample once an epoch, 0.5 every second one (the others in the epoch after), 2
each twice. The streams are mixed at random, so a batch holds samples of all of them.

As with one dataset, the order depends on the seed and the epoch alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from glit.dataset.columns import RowGroup
from glit.dataset.reader import Dataset, Place
from glit.training.order import epoch_order

_STRIDE = 1_000_003
_MIXED = 1
"""Tells the draws that mix streams from those that order one."""


class Mixture:
    """Several datasets as one: row groups by number, those of the first dataset first."""

    def __init__(self, parts: Sequence[Dataset], weights: Sequence[float] = ()) -> None:
        """Join datasets.

        Args:
            parts: one or more.
            weights: above 0, one for each; without them all are 1.
        """
        self.parts = tuple(parts)
        self.weights = tuple(weights) or (1.0,) * len(self.parts)
        assert len(self.weights) == len(self.parts) > 0
        self.path = " and ".join(part.path for part in self.parts)
        self.places: tuple[Place, ...] = tuple(p for part in self.parts for p in part.places)
        """Every row group."""
        counts = [len(part.places) for part in self.parts]
        self._first = [sum(counts[:index]) for index in range(len(counts))]
        self._sizes = [
            max(1, round(weight * len(part)))
            for part, weight in zip(self.parts, self.weights, strict=True)
        ]

    def __len__(self) -> int:
        """Samples an epoch."""
        return sum(self._sizes)

    def row_group(self, number: int, *, columns: Sequence[str] | None = None) -> RowGroup:
        """A row group by its number in ``places``; see :meth:`glit.dataset.Dataset.row_group`."""
        part = max(i for i, first in enumerate(self._first) if first <= number)
        return self.parts[part].row_group(number - self._first[part], columns=columns)

    def order(
        self, *, seed: int, epoch: int, window: int, together: int = 1
    ) -> Int[np.ndarray, "n 2"]:
        """Row ``i`` is (row group, row in it) of the i-th sample of the epoch.

        Args:
            seed: of the run.
            epoch: from 0.
            window: row groups of a dataset that are shuffled together.
            together: rows side by side that stay so; of one dataset only.
        """
        streams = []
        for part, (dataset, size) in enumerate(zip(self.parts, self._sizes, strict=True)):
            rows, number = [place.num_rows for place in dataset.places], len(dataset)
            start, stop = epoch * size, (epoch + 1) * size  # of the dataset's endless order
            own_seed, passes = seed + part * _STRIDE, []
            for turn in range(start // number, -(-stop // number)):
                order = epoch_order(
                    rows, seed=own_seed, epoch=turn, window=window, together=together
                )
                passes.append(order[max(start - turn * number, 0) : stop - turn * number])
            streams.append(np.concatenate(passes))
            streams[part][:, 0] += self._first[part]
        if len(streams) == 1:
            return streams[0]
        assert together == 1
        of_part = np.repeat(np.arange(len(streams)), self._sizes)
        of_part = np.random.default_rng([seed, epoch, _MIXED]).permutation(of_part)
        mixed = np.empty((len(self), 2), dtype=np.int64)
        for part, stream in enumerate(streams):
            mixed[of_part == part] = stream
        return mixed
