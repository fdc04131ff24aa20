"""Items in batches, and work done by threads ahead of whoever takes its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def batched(items: Iterable[In], size: int) -> Iterator[list[In]]:
    """Lists of ``size`` consecutive items; the last may be shorter.

    >>> list(batched(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """
    waiting = iter(items)
    while batch := list(islice(waiting, size)):
        yield batch


def map_ahead(
    pool: Executor, work: Callable[[In], Out], items: Iterable[In], *, most: int
) -> Iterator[Out]:
    """``map(work, items)`` by a pool's threads, in order.

    Args:
        pool: of threads.
        work: done to every item.
        items: are taken from their iterator as results are taken from here.
        most: results that are at work or waiting at a time; bounds the memory.
    """
    waiting = iter(items)
    futures: deque[Future[Out]] = deque(pool.submit(work, item) for item in islice(waiting, most))
    while futures:
        result = futures.popleft().result()
        futures.extend(pool.submit(work, item) for item in islice(waiting, 1))
        yield result
