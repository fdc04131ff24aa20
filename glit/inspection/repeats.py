"""Find captions that belong to several images, exactly or nearly, and names that clash.

Texts go to a temporary file, and so do 12 MinHash keys of each; in memory stay some bytes for each
caption and name. Why this is no library: docs/decisions/audit.md.
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from array import array
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int, UInt64

from glit.inspection.names import folded

LEAST_SHARED = 0.8
"""Jaccard similarity of the three-word runs of two captions, from which they are nearly the same.
"""
_BANDS, _ROWS = 12, 5
"""Two captions with 0.8 of their runs in common share a band with a probability of 99 %; with half
of them in 32 %."""
_FEWEST_WORDS = 8
"""Shorter captions are nearly the same by chance."""
_MOST_CHARS = 20_000
_PRIME = np.uint64((1 << 31) - 1)
_RANDOM = np.random.default_rng(20_240_601)
_FACTORS = _RANDOM.integers(1, 1 << 31, (_BANDS * _ROWS, 1), dtype=np.uint64)
_OFFSETS = _RANDOM.integers(0, 1 << 31, (_BANDS * _ROWS, 1), dtype=np.uint64)
_MIX = _RANDOM.integers(1, 1 << 63, (1, _ROWS), dtype=np.uint64) | np.uint64(1)


class Texts:
    """Texts in a temporary file, by number."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, text: str) -> None:
        """Write a text."""
        data = text.encode("utf-8", "surrogatepass")
        self._file.seek(self._ends[-1])
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))

    def __getitem__(self, number: int) -> str:
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


class Repeats:
    """Captions and names of all images, to compare them at the end."""

    def __init__(self) -> None:
        self.captions, self.names = Texts(), Texts()
        self._digests, self._image = array("Q"), array("Q")
        self._exact, self._folded = array("Q"), array("Q")
        self._is_long = bytearray()
        self._keys = [tempfile.TemporaryFile() for _ in range(_BANDS)]  # noqa: SIM115 (closed by close)

    def close(self) -> None:
        """Delete the files."""
        for file in self._keys:
            file.close()
        self.captions.close()
        self.names.close()

    def add(self, name: str, captions: tuple[str, ...]) -> None:
        """Add an image."""
        self.names.add(name)
        self._exact.append(_digest(name))
        self._folded.append(_digest(folded(name)))
        for caption in captions:
            words = caption[:_MOST_CHARS].split()
            if words:
                self.captions.add(" ".join(words))
                self._digests.append(_digest(" ".join(words)))
                self._image.append(len(self.names) - 1)
                is_long = len(words) >= _FEWEST_WORDS
                self._is_long.append(is_long)
                keys = _band_keys(words) if is_long else np.zeros(_BANDS, np.uint64)
                for file, key in zip(self._keys, keys, strict=True):
                    file.write(key.tobytes())

    def clashes(self) -> Iterator[tuple[str, str]]:
        """Names that another one differs from in case or Unicode form alone, each with that one."""
        for group in _equal(np.frombuffer(self._folded, np.uint64)):
            first = group[0]
            others = [n for n in group if self._exact[n] != self._exact[first]]
            if others:
                for number in group:
                    other = first if self._exact[number] != self._exact[first] else others[0]
                    yield self.names[number], self.names[other]

    def repeated(self) -> Iterator[tuple[str, str]]:
        """Images whose caption others have too, each with the caption and the number of them."""
        for group in self._same():
            number = len({self._exact[self._image[n]] for n in group})
            said = self.captions[group[0]][:120]
            for each in group:
                yield self._name(each), f"{number} images have {said!r}"

    def near(self) -> Iterator[tuple[str, str]]:
        """Images whose caption is nearly that of another, each with the other's name; captions that
        are repeated exactly do not count."""
        found = self._near()
        for each in sorted(found):
            other, shared = found[each]
            said = self.captions[each][:100]
            yield self._name(each), f"{said!r} shares {shared:.0%} with {self._name(other)}"

    def _name(self, caption: int) -> str:
        return self.names[self._image[caption]]

    def _same(self) -> Iterator[list[int]]:
        for group in _equal(np.frombuffer(self._digests, np.uint64)):
            if len({self._exact[self._image[n]] for n in group}) > 1:
                yield group

    def _near(self) -> dict[int, tuple[int, float]]:
        """Captions that are nearly another one: the other, and the share of runs in common."""
        waiting = np.frombuffer(bytes(self._is_long), bool).copy()
        for group in self._same():
            waiting[group] = False
        found: dict[int, tuple[int, float]] = {}
        for file in self._keys if waiting.any() else ():
            file.seek(0)
            for group in _equal(np.frombuffer(file.read(), np.uint64), waiting):
                self._compare(group, found)
        return found

    def _compare(self, group: list[int], found: dict[int, tuple[int, float]]) -> None:
        """Compare the captions of a group with its first one and the one before."""
        runs: dict[int, set[tuple[str, ...]]] = {}
        for before, each in pairwise(group):
            for other in dict.fromkeys((group[0], before)):
                is_own = self._exact[self._image[other]] == self._exact[self._image[each]]
                if is_own or (each in found and other in found):
                    continue
                one, two = (
                    runs.setdefault(n, _runs(self.captions[n].split())) for n in (other, each)
                )
                shared = len(one & two) / len(one | two)
                if shared >= LEAST_SHARED:
                    found.setdefault(each, (other, shared))
                    found.setdefault(other, (each, shared))
            if before != group[0]:
                runs.pop(before, None)


def _digest(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    plain = [word.strip(".,;:!?\"'()").lower() for word in words]
    return set(zip(plain, plain[1:], plain[2:], strict=False))


def _band_keys(words: list[str]) -> UInt64[np.ndarray, " bands"]:
    """The keys of a caption: equal for two captions in a band if their least hashes are."""
    made = [zlib.crc32(" ".join(run).encode("utf-8", "replace")) for run in _runs(words)]
    hashes = np.array(made, np.uint64) % _PRIME
    least = ((_FACTORS * hashes + _OFFSETS) % _PRIME).min(axis=1).reshape(_BANDS, _ROWS)
    return (least * _MIX).sum(axis=1, dtype=np.uint64)


def _equal(
    keys: UInt64[np.ndarray, " n"], chosen: Bool[np.ndarray, " n"] | None = None
) -> Iterator[list[int]]:
    """Groups of two or more numbers with equal keys, each in order."""
    places: Int[np.ndarray, " m"] = np.arange(len(keys))
    if chosen is not None:
        places, keys = places[chosen], keys[chosen]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else []
    ends = np.r_[starts[1:], len(keys)] if len(keys) else []
    for start, end in zip(starts, ends, strict=True):
        if end - start > 1:
            yield places[order[start:end]].tolist()
