"""The series of a dataset: what was built first, and every addition; their balance, their data
files, and which of these can stay as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from glit.dataset.manifest import SeriesCounts, num_series
from glit.pipeline.ledger import Ledger
from glit.pipeline.listing import Chunk, series_of
from glit.pipeline.state import Published, read_state
from glit.pipeline.work import Work
from glit.stages.dedup import Duplicate
from glit.stages.ingest import Ingest
from glit.stages.pack import DataFile, PackConfig, cut_files
from glit.storage.store import Store


def count_series(
    work: Work, chunks: list[Chunk], ledger: Ledger, duplicates: list[Duplicate]
) -> list[SeriesCounts]:
    """The balance of every series."""
    repeats = Counter(duplicate.chunk for duplicate in duplicates)
    return [
        SeriesCounts(
            ingested=work.counts(Ingest.name, series)[0],
            shipped=sum(len(ledger.sizes[chunk.index]) for chunk in series),
            dropped=sum(ledger.num_dropped[chunk.index] for chunk in series),
            duplicates=sum(repeats[chunk.index] for chunk in series),
        )
        for series in series_of(chunks)
    ]


def cut_series(work: Work, chunks: list[Chunk], ledger: Ledger) -> list[DataFile]:
    """The data files of all series."""
    config = work.plan.config(PackConfig)
    return [
        file
        for number, series in enumerate(series_of(chunks))
        for file in cut_files(
            [ledger.sizes[chunk.index] for chunk in series],
            config,
            series=number,
            first_chunk=series[0].index,
        )
    ]


def same_series(work: Work, ledger: Ledger, before: dict[str, Any] | None) -> set[int]:
    """The series of which the dataset holds just what would be shipped now."""
    if before is None or before["fingerprints"] != dict(work.plan.fingerprints):
        return set()
    noted = [each.content for each in read_state(work.store).published or ()][: num_series(before)]
    both = zip(noted, ledger.contents, strict=False)  # there may be more of either
    return {number for number, (then, now) in enumerate(both) if then == now}


def kept_files(
    dataset: Store, before: dict[str, Any], files: list[DataFile], same: set[int]
) -> dict[str, dict[str, Any]]:
    """What the manifest says of those data files that stay, by name."""
    known = before["files"]
    return {
        file.name: known[name]
        for file in files
        if file.series in same
        and (name := f"data/{file.name}") in known
        and dataset.entry(name).size == known[name]["bytes"]
    }


def series_made_of(chunks: Sequence[Chunk], contents: Sequence[str]) -> tuple[Published, ...]:
    """What the state keeps of a dataset, by series."""
    both = zip(identities(chunks), contents, strict=True)
    return tuple(Published(images=images, content=content) for images, content in both)


def identities(chunks: Sequence[Chunk]) -> list[str]:
    """What images every series is made of: a hash over the keys of its chunks."""
    keys = [
        " ".join(key for chunk in series for key in (chunk.key, *chunk.beside))
        for series in series_of(chunks)
    ]
    return [hashlib.sha256(each.encode()).hexdigest() for each in keys]
