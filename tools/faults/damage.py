"""Damage to a build's files between two attempts, as disks and people do it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def flip_a_bit(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    """A torn write: the end is missing."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def zero_a_block(path: Path, rng: random.Random) -> None:
    """A sector that reads as zeros."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(0, len(data), 512)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Damage] = {
    "a flipped bit": flip_a_bit,
    "a file cut short": cut,
    "a block of zeros": zero_a_block,
    "a file removed": remove,
}


def harm(work: Path, damage: Damage, rng: random.Random) -> str | None:
    """Harm one file of the work folder; its name, None where there is none."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.stat().st_size > 0)
    if not files:
        return None
    chosen = rng.choice(files)
    damage(chosen, rng)
    return str(chosen.relative_to(work))
