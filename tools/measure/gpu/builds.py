"""Whole builds on one GPU, in this process and by Ray: how busy the GPU is."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from glit import build
from glit.bench.harness import Row, note
from glit.bench.lism_flism.models import random_yolos
from glit.bench.scenes import paint
from glit.models.clip.random_clip import write_random_clip
from glit.pipeline.executors import ExecutorName
from tools.measure.gpu.bench import Bench, row


def measure(bench: Bench) -> Iterator[Row]:
    """Images a second from files to a dataset, captions given, and the GPU's busy share."""
    sizes, full = bench.scale.sizes, bench.is_full
    number = 512 if full else 2
    scenes = paint(
        bench.scratch / "scenes", num=number, seed=0, level="hard", size=sizes.scene_px,
        image_format="jpeg",
    )  # fmt: skip
    captions = scenes / "captions.jsonl"
    clip = write_random_clip(
        bench.scratch / "clip", sizes.clip, seed=0,
        corpus=captions.read_text(encoding="utf-8").splitlines(), vocabulary=900,
        embedding_rows=sizes.embedding_rows,
    )  # fmt: skip
    yolos = random_yolos(sizes, bench.scratch / "yolos")
    settings = [
        f"propose.model={yolos}", f"score.model={clip}", f"split.tokenizer={clip}",
        "propose.score_threshold=0.0",
    ]  # fmt: skip
    executors: list[ExecutorName] = ["local"]
    if importlib.util.find_spec("ray") is None:
        yield note("Ray is not installed")
    elif full:
        executors.append("ray")
    for executor in executors:
        started = time.perf_counter()
        with _busy_shares(bench.scratch / f"{executor}.dmon") as busy:
            built = build(
                scenes / "images", bench.scratch / executor, recipe="flism", captions=captions,
                settings=settings, executor=executor, quiet=True,
            )  # fmt: skip
        seconds = time.perf_counter() - started
        yield row(f"build, {executor}", len(built) / seconds, "images/s")
        if shares := busy():
            yield row("… the GPU is busy", sum(shares) / len(shares) / 100, "of 1")


@contextlib.contextmanager
def _busy_shares(log: Path):
    """While the block runs, nvidia-smi notes each second what share of it kernels ran, in percent;
    nothing where there is none."""
    if shutil.which("nvidia-smi") is None:
        yield lambda: []
        return
    with log.open("w") as output:
        watch = subprocess.Popen(["nvidia-smi", "dmon", "-s", "u", "-d", "1"], stdout=output)
        try:
            yield lambda: busy_shares(log.read_text())
        finally:
            watch.terminate()
            watch.wait()


def busy_shares(printed: str) -> list[float]:
    """The column ``sm`` of what ``nvidia-smi dmon -s u`` prints.

    >>> busy_shares("# gpu sm mem\\n# Idx % %\\n 0 37 5\\n 0 - -\\n")
    [37.0]
    """
    lines = [line.split() for line in printed.splitlines() if not line.startswith("#")]
    return [float(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()]
