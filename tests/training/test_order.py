"""The order of an epoch and how ranks share it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.training.order import BatchPlan, epoch_order

ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(lambda r: sum(r) > 0)


@given(rows=ROWS, seed=st.integers(0, 99), epoch=st.integers(0, 5), window=st.integers(1, 8))
def test_every_sample_once(rows: list[int], seed: int, epoch: int, window: int) -> None:
    order = epoch_order(rows, seed=seed, epoch=epoch, window=window)
    wanted = {(g, r) for g, count in enumerate(rows) for r in range(count)}
    assert len(order) == len(wanted)
    assert set(map(tuple, order.tolist())) == wanted


def test_the_seed_and_the_epoch_decide() -> None:
    rows = [10] * 10
    first = epoch_order(rows, seed=1, epoch=0, window=3)
    assert np.array_equal(first, epoch_order(rows, seed=1, epoch=0, window=3))
    assert not np.array_equal(first, epoch_order(rows, seed=1, epoch=1, window=3))
    assert not np.array_equal(first, epoch_order(rows, seed=2, epoch=0, window=3))


def test_a_window_bounds_the_row_groups_in_flight() -> None:
    order = epoch_order([10] * 12, seed=0, epoch=0, window=3)
    for start in range(0, 120, 30):
        assert len(set(order[start : start + 30, 0].tolist())) == 3


@given(
    num=st.integers(1, 200),
    batch=st.integers(1, 50),
    ranks=st.integers(1, 5),
    drop_last=st.booleans(),
)
def test_ranks_share_every_batch(num: int, batch: int, ranks: int, drop_last: bool) -> None:
    plan = BatchPlan(num_samples=num, batch_size=batch, num_ranks=ranks, drop_last=drop_last)
    seen: list[int] = []
    for index in range(len(plan)):
        parts = [plan.part(index, rank) for rank in range(ranks)]
        assert len({len(positions) + fillers for positions, fillers in parts}) == 1
        seen += [p for positions, _ in parts for p in positions]
    kept = num // batch * batch if drop_last else num
    assert seen == list(range(kept))


@pytest.mark.parametrize(("drop_last", "wanted"), [(False, 3), (True, 2)])
def test_the_last_batch(drop_last: bool, wanted: int) -> None:
    plan = BatchPlan(num_samples=10, batch_size=4, num_ranks=1, drop_last=drop_last)
    assert len(plan) == wanted


def test_rows_that_belong_together_stay_side_by_side() -> None:
    """Blocks of four from the beginning of every group; the last of a group may be smaller."""
    rows = [10, 8, 3]
    order = epoch_order(rows, seed=0, epoch=0, window=2, together=4).tolist()
    assert sorted(order) == [[g, i] for g, n in enumerate(rows) for i in range(n)]
    blocks = [[[g, i] for i in range(low, min(low + 4, n))]
              for g, n in enumerate(rows) for low in range(0, n, 4)]  # fmt: skip
    found = []
    while order:
        block = next(b for b in blocks if order[: len(b)] == b)
        found.append(block)
        order = order[len(block) :]
    assert sorted(found) == sorted(blocks) and found != blocks
    other = epoch_order(rows, seed=0, epoch=1, window=2, together=4).tolist()
    assert other != [row for block in found for row in block]
