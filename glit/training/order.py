"""Compute an epoch's sample order from row counts.

The row groups of all files are shuffled, their order is cut into windows of ``window`` row groups,
and the rows of a window are shuffled together. So few row groups are in memory at a time, and
samples that lie side by side in the files (those of one folder) are spread out.

The order depends on the seed and the epoch alone. Ranks and workers take their parts of it, so
every sample is seen exactly once per epoch whatever their number, a global batch holds the same
samples on one process as on eight, and (epoch, batch) is an exact position to resume from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


def epoch_order(
    rows_per_group: Sequence[int], *, seed: int, epoch: int, window: int, together: int = 1
) -> Int[np.ndarray, "n 2"]:
    """Row ``i`` is (row group, row in it) of the i-th sample of the epoch; O(n) time and memory.

    ``together`` rows of a group that lie side by side stay so: similar samples of a dataset (twins,
    frames of a film) then meet in a batch.

    >>> sorted(map(tuple, epoch_order([2, 1], seed=0, epoch=0, window=1).tolist()))
    [(0, 0), (0, 1), (1, 0)]
    """
    generator = np.random.default_rng([seed, epoch])
    groups = generator.permutation(len(rows_per_group))
    windows = []
    for start in range(0, len(groups), window):
        rows = [
            np.stack([np.full(rows_per_group[g], g), np.arange(rows_per_group[g])], axis=1)
            for g in groups[start : start + window]
        ]
        joined = np.concatenate(rows)
        if together == 1:
            windows.append(generator.permutation(joined))
            continue
        first = np.concatenate([row[:, 1] % together == 0 for row in rows])
        block = np.cumsum(first) - 1
        key = generator.permutation(int(first.sum()))[block]
        windows.append(joined[np.argsort(key, kind="stable")])
    return np.concatenate(windows) if windows else np.zeros((0, 2), dtype=np.int64)


def grouped_within_batches(
    order: Int[np.ndarray, "n 2"], batch_size: int
) -> Int[np.ndarray, "n 2"]:
    """The same batches, the samples of each sorted by row group.

    What a loss makes of a batch does not depend on its order, but ranks take contiguous parts of
    it: so each reads few of the row groups of a window instead of all of them.

    >>> grouped_within_batches(np.array([[4, 0], [1, 0], [4, 1], [0, 0], [1, 1]]), 3).tolist()
    [[1, 0], [4, 0], [4, 1], [0, 0], [1, 1]]
    """
    batches = np.arange(len(order)) // batch_size
    return order[np.lexsort((order[:, 0], batches))]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A plan that cuts an epoch of ``num_samples`` into batches and those among ranks."""

    num_samples: int
    """Samples of the epoch."""

    batch_size: int
    """Samples of a batch, over all ranks."""

    num_ranks: int
    """Processes that share a batch."""

    drop_last: bool = False
    """True skips a smaller last batch."""

    def __len__(self) -> int:
        """Batches an epoch."""
        full, rest = divmod(self.num_samples, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def part(self, batch: int, rank: int) -> tuple[range, int]:
        """Positions in the epoch that ``rank`` takes of ``batch``, and fillers to add to them.

        All ranks get equally many, fillers included: contiguous parts in rank order, so that
        gathering them gives the batch in its own order.

        >>> plan = BatchPlan(num_samples=7, batch_size=4, num_ranks=2)
        >>> [plan.part(1, rank) for rank in (0, 1)]
        [(range(4, 6), 0), (range(6, 7), 1)]
        """
        first = batch * self.batch_size
        end = min(first + self.batch_size, self.num_samples)
        share = -(-(end - first) // self.num_ranks)
        low = min(first + rank * share, end)
        high = min(low + share, end)
        return range(low, high), share - (high - low)
