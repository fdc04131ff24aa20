"""Whatever is in the folder and wherever the build stops: the balance holds, the bytes are the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from building import data_bytes, png, run_build
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.dataset.verify import verify
from glit.errors import RunError
from glit.pipeline.executors.local import LocalExecutor

KINDS = ("good", "repeat", "corrupt", "empty", "link", "silent")
"""A good image, one with the bytes of the first, three that cannot be read, one without caption."""


class Stops(LocalExecutor):
    def __init__(self, after: int):
        self.left = after

    def run_job(self, job):
        def counted(unit, tally):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            job.on_done(unit, tally)

        super().run_job(replace(job, on_done=counted))


def fill(folder: Path, kinds: list[str]) -> dict[str, str]:
    """Write the files; the reason each is expected to be dropped for."""
    expected = {}
    for number, kind in enumerate(kinds):
        name = f"{number:03d}.png"
        path = folder / name
        if kind == "link":
            path.symlink_to(folder / "nowhere.png")
            expected[name] = "unreadable"
        elif kind == "empty":
            path.write_bytes(b"")
            expected[name] = "empty_file"
        elif kind == "corrupt":
            path.write_bytes(png(seed=number)[:-30])
            expected[name] = "corrupt"
        else:
            path.write_bytes(png(seed=999 if kind == "repeat" else number))
        if kind == "silent":
            expected[name] = "no_caption"
        else:
            path.with_suffix(".txt").write_text("A red circle. A blue square is beside it.")
    return expected


@pytest.mark.slow
@settings(max_examples=6)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=10), stop=st.integers(1, 14))
def test_balance_and_bytes(kinds, stop):
    options = {
        "overrides": ["caption.backend=sidecar", "propose.backend=grid", "ingest.chunk_size=3"]
    }
    with tempfile.TemporaryDirectory() as scratch:
        images = Path(scratch) / "images"
        images.mkdir()
        expected = fill(images, kinds)
        repeats = max(0, kinds.count("repeat") - 1)
        shipped = len(kinds) - len(expected) - repeats
        if not shipped:
            with pytest.raises(RunError, match="no sample was left"):
                run_build(images, Path(scratch) / "whole", **options)
            return
        whole = run_build(images, Path(scratch) / "whole", **options)
        counts = whole.counts
        assert (counts.ingested, counts.shipped, counts.duplicates) == (
            len(kinds),
            shipped,
            repeats,
        )
        drops = pq.read_table(Path(scratch) / "whole" / "drops.parquet").to_pylist()
        assert {row["source_path"]: row["reason"] for row in drops} == expected
        assert list(verify(str(Path(scratch) / "whole"))) == []
        stopped = Path(scratch) / "stopped"
        try:
            run_build(images, stopped, executor=Stops(stop), **options)
        except KeyboardInterrupt:
            assert not (stopped / "manifest.json").exists()
        run_build(images, stopped, **options)
        assert data_bytes(stopped) == data_bytes(Path(scratch) / "whole")
