"""Ledgers: what became of every image, written by workers and read by the driver."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest
from building import Counting, counts, png, quiet, run_build, with_captions_beside

from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.storage.store import Store


@pytest.fixture
def images(scenes, tmp_path):
    """Eight scenes in chunks of four; the third file is a link to nowhere."""
    folder = with_captions_beside(scenes, tmp_path / "images", 8)
    shutil.move(folder / "000002.png", tmp_path / "hidden.png")
    (folder / "000002.png").symlink_to(tmp_path / "later.png")
    return folder


SETTINGS: dict[str, Any] = {"overrides": ["caption.backend=sidecar", "ingest.chunk_size=4"]}


class AtWork(Counting):
    """Knows whether workers are at work; can stop before a task."""

    def __init__(self, stop_before: str = "") -> None:
        super().__init__()
        self.at_work = False
        self.stop_before = stop_before

    def run_job(self, job):
        if job.task.name == self.stop_before:
            raise KeyboardInterrupt
        self.at_work = True
        try:
            super().run_job(job)
        finally:
            self.at_work = False


def test_the_driver_reads_ledgers_and_not_the_tables_of_stages(images, tmp_path, monkeypatch):
    executor, read = AtWork(), []

    def noting(method):
        def noted(self, path):
            if not executor.at_work and path.endswith(".parquet"):
                read.append(path)
            return method(self, path)

        return noted

    for name in ("local_copy", "for_arrow", "read"):
        monkeypatch.setattr(Store, name, noting(getattr(Store, name)))
    assert counts(run_build(images, tmp_path / "out", executor=executor, **SETTINGS)) == (
        8,
        7,
        1,
        0,
    )
    folders = [path.split("/")[0].split("-")[0] for path in read]
    assert set(folders) == {
        "listing.parquet",
        "ingest",
        "ledger",
        "duplicates",
        "data",  # a few columns, for the card
    }
    assert folders.count("ledger") == 2
    assert executor.done["ledger"] == 2


def test_a_row_is_an_image_that_is_shipped_or_dropped(images, tmp_path):
    run_build(images, tmp_path / "out", **SETTINGS)
    first, _ = sorted((tmp_path / "out" / "work").glob("ledger-*/*.parquet"))
    rows = pq.read_table(first).to_pylist()
    assert [(row["source_path"], row["stage"], row["reason"]) for row in rows] == [
        ("000000.png", None, None),
        ("000001.png", None, None),
        ("000002.png", "ingest", "unreadable"),
        ("000003.png", None, None),
    ]
    sizes = [(images / row["source_path"]).stat().st_size for row in rows if not row["stage"]]
    assert [row["num_bytes"] for row in rows if not row["stage"]] == sizes


def test_a_chunk_that_is_done_again_has_a_new_ledger(images, tmp_path):
    run_build(images, tmp_path / "out", **SETTINGS)
    (images / "000005.png").write_bytes(png(seed=5))
    executor = Counting()
    run_build(images, tmp_path / "out", executor=executor, replace=True, **SETTINGS)
    assert executor.done["ledger"] == 1


def test_a_retry_writes_the_ledgers_of_its_chunks_again(images, tmp_path):
    out = tmp_path / "out"
    run_build(images, out, **SETTINGS)
    shutil.move(tmp_path / "hidden.png", tmp_path / "later.png")
    executor = Counting()
    assert counts(retry(str(out), executor, quiet())) == (8, 8, 0, 0)
    assert executor.done["ledger"] == 1
    assert pq.read_table(out / "drops.parquet").num_rows == 0


def test_a_retry_stopped_before_its_ledgers_leaves_none_that_tell_of_earlier_tables(
    images, tmp_path
):
    out = tmp_path / "out"
    run_build(images, out, **SETTINGS)
    shutil.move(tmp_path / "hidden.png", tmp_path / "later.png")
    with pytest.raises(KeyboardInterrupt):
        retry(str(out), AtWork(stop_before="ledger"), quiet())
    assert counts(retry(str(out), LocalExecutor(), quiet())) == (8, 8, 0, 0)
