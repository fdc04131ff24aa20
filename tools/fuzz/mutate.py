"""Odd bytes of good ones: flips, cuts, repeats, numbers at their limits, pieces of other files."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_NUMBERS = (
    b"0", b"-1", b"1e309", b"NaN", b"2147483648", b"9223372036854775808", b"1" * 400, b"0.1e-400",
)  # fmt: skip
_WORDS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xc2\xa0", b"\xe2\x80\xae", b'"',
    b"{" * 300, b"[" * 300, b"\\u0000", b"\\ud800", b"null", b"true", b"../", b"<script>", b"\r\n",
)  # fmt: skip
_LIMITS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF)
Change = Callable[[bytearray, Sequence[bytes], random.Random], None]


def _flip(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def _limit(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    size = rng.choice((1, 2, 4))
    start = rng.randrange(len(data))
    value = rng.choice(_LIMITS) & (256**size - 1)
    data[start : start + size] = value.to_bytes(size, rng.choice(("big", "little")))


def _cut(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _leave_out(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 64)]


def _repeat(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 200)]
    data[start:start] = piece * rng.choice((1, 2, 50))


def _insert(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = rng.choice(_WORDS + _NUMBERS)


def _replace_number(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    digits = [at for at in range(len(data)) if 48 <= data[at] <= 57][:5000]
    if not digits:
        return _insert(data, corpus, rng)
    start = rng.choice(digits)
    end = start
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    data[start:end] = rng.choice(_NUMBERS)
    return None


def _splice(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(corpus)
    data[rng.randrange(len(data)) :] = other[rng.randrange(len(other)) :]


def _zeros(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((4, 64, 512)))
    data[start:end] = bytes(end - start)


_CHANGES: tuple[Change, ...] = (
    _flip, _byte, _limit, _cut, _leave_out, _repeat, _insert, _replace_number, _splice, _zeros,
)  # fmt: skip


def mutated(corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the corpus after one to four changes."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 2, 4))):
        if data:
            rng.choice(_CHANGES)(data, corpus, rng)
    return bytes(data)
