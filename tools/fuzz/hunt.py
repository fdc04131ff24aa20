"""Cases by their seeds, in processes that may die; a find is kept with its bytes and its seed."""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path
from types import FrameType

from tools.fuzz.mutate import mutated
from tools.fuzz.targets import Target

_BLOCK = 500
_MEMORY = 8 << 30


class _TooLong(BaseException):
    """A case took too long; no reader may swallow it."""


def hunt(name: str, target: Target, seeds: range, output: Path) -> Counter[str]:
    """Put the cases of many seeds to a target; what became of them, finds as ``find: …``."""
    total: Counter[str] = Counter()
    at = mmap.mmap(-1, 8)
    start = seeds.start
    while start < seeds.stop:
        stop = min(start + _BLOCK, seeds.stop)
        found, ended = _forked(name, target, range(start, stop), output, at)
        total += found
        if ended is None:
            start = stop
            continue
        seed = int.from_bytes(at[:8], "little")  # the process is gone; this one it was at
        total += _kept(name, target, seed, output, ended)
        start = seed + 1
    return total


def case(name: str, target: Target, seed: int) -> bytes:
    """The bytes of a seed."""
    rng = random.Random(zlib.crc32(f"{name} {seed}".encode()))
    return target.make(rng) if target.make else mutated(target.corpus, rng)


def _forked(
    name: str, target: Target, seeds: range, output: Path, at: mmap.mmap
) -> tuple[Counter[str], str | None]:
    """Counts, and how the process ended where it did not come to the end."""
    results = output / "block.json"
    results.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGALRM, _alarm)
        counts: Counter[str] = Counter()
        for seed in seeds:
            at[:8] = seed.to_bytes(8, "little")
            if seed % 50 == 0:
                results.write_text(json.dumps(counts))
            counts += _tried(name, target, seed, output)
        results.write_text(json.dumps(counts))
        os._exit(0)
    seen, since = -1, time.monotonic()
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0):
        now = int.from_bytes(at[:8], "little")
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > 4 * target.seconds:  # deaf to its alarm
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    counts = Counter(json.loads(results.read_text())) if results.exists() else Counter()
    code = os.waitstatus_to_exitcode(status[1])
    return counts, None if code == 0 else f"the process ended with {code}"


def _alarm(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def _tried(name: str, target: Target, seed: int, output: Path) -> Counter[str]:
    data = case(name, target, seed)
    signal.setitimer(signal.ITIMER_REAL, target.seconds)
    try:
        return Counter([target.check(data)])
    except _TooLong:
        return _kept(name, target, seed, output, f"longer than {target.seconds} s")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - also a panic in Rust is a find, no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
        return _kept(name, target, seed, output, line)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _kept(name: str, target: Target, seed: int, output: Path, what: str) -> Counter[str]:
    finds = output / "finds"
    finds.mkdir(exist_ok=True)
    (finds / f"{name.replace(' ', '-')}-{seed}").write_bytes(case(name, target, seed))
    with (output / "finds.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"target": name, "seed": seed, "what": what[:500]}) + "\n")
    return Counter([f"find: {what[:120]}"])
