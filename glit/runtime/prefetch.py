"""Batch items, and map a function over items in prefetching threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from itertools import islice
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def batched(items: Iterable[In], size: int) -> Iterator[list[In]]:
    """Yield lists of ``size`` consecutive items; the last may be shorter.

    >>> list(batched(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """
    waiting = iter(items)
    while batch := list(islice(waiting, size)):
        yield batch


def batched_by_weight(
    items: Iterable[In], size: int, *, weight: Callable[[In], int], heaviest: int
) -> Iterator[list[In]]:
    """Yield lists of up to ``size`` consecutive items of at most ``heaviest``, or one item alone.

    >>> list(batched_by_weight([3, 1, 1, 9, 1], 3, weight=abs, heaviest=4))
    [[3, 1], [1], [9], [1]]
    """
    batch: list[In] = []
    held = 0
    for item in items:
        own = weight(item)
        if batch and (len(batch) == size or held + own > heaviest):
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += own
    if batch:
        yield batch


def map_ahead(
    pool: Executor,
    work: Callable[[In], Out],
    items: Iterable[In],
    *,
    most: int,
    weight: Callable[[In], int] = lambda _: 0,
    heaviest: int = 0,
) -> Iterator[Out]:
    """Yield ``map(work, items)`` in order, computed ahead by a pool's threads.

    Once one has failed, or nobody takes results any more, no other is begun: a store that is
    silent would be asked for each.

    Args:
        pool: of threads.
        work: done to every item.
        items: are taken from their iterator as results are taken from here.
        most: results that are at work or waiting at a time; bounds the memory.
        weight: of an item's result.
        heaviest: what all of them weigh together at a time, if it is not one alone.
    """
    waiting = iter(items)
    following = list(islice(waiting, 1))
    futures: deque[tuple[Future[Out], int]] = deque()
    ended: list[BaseException] = []

    def begun(item: In) -> Out:
        if ended:
            raise ended[0]
        try:
            return work(item)
        except BaseException as error:
            ended.append(error)  # at once: the next would be begun before anybody heard of it
            raise

    def submit() -> None:
        while following and len(futures) < most:
            own = weight(following[0])
            if futures and own + sum(each for _, each in futures) > heaviest:
                return
            futures.append((pool.submit(begun, following.pop()), own))
            following.extend(islice(waiting, 1))

    try:
        submit()
        while futures:
            result = futures.popleft()[0].result()
            submit()
            yield result
    finally:
        ended.append(CancelledError())
