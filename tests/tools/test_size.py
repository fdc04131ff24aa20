"""The work folder made up for measuring is one that a build goes on with."""

from __future__ import annotations

from glit.pipeline.ledger import read_ledgers
from glit.pipeline.listing import read_chunks
from glit.pipeline.status import status
from tools.measure import size


def test_a_made_up_work_folder_is_as_a_build_leaves_it(tmp_path) -> None:
    size.fill(tmp_path, 250)
    stages = status(str(tmp_path / "out"))["stages"]
    done = [(each["chunks_done"], each["chunks_total"]) for each in stages]
    assert done == [(16, 16)] * 5 + [(15, 16)]
    work = size._work(tmp_path, size._recipe())
    chunks = read_chunks(work.store.full("listing.parquet"))
    ledger = read_ledgers(work, chunks)
    assert sum(map(len, ledger.sizes)) + len(ledger.drops) == 250
    size._resume(tmp_path, size._recipe())  # fails where there is nothing to do
