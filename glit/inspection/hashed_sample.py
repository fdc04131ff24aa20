"""A sample of bounded size, the same for the same items in any order."""

from __future__ import annotations

import hashlib
import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class HashedSample(Generic[T]):
    """Values of the items with the smallest hashes.

    Args:
        most: values that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[int, int, T]] = []
        self.seen = 0
        """Items that were added."""

    def wants(self, key: int) -> bool:
        """Return whether an item belongs to the sample of those so far."""
        return len(self._kept) < self._most or key <= -self._kept[0][0]

    def add(self, key: int, value: T) -> None:
        """Add an item."""
        self.seen += 1
        heapq.heappush(self._kept, (-key, -self.seen, value))
        if len(self._kept) > self._most:
            heapq.heappop(self._kept)

    def values(self) -> list[T]:
        """The values, by key."""
        return [value for *_, value in sorted(self._kept, key=lambda each: each[:2], reverse=True)]

    def __len__(self) -> int:
        return len(self._kept)


def hash_key(text: str) -> int:
    """64 bits of a text's hash."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace")).digest()[:8])
