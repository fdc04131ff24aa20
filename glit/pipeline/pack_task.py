"""Packing over data files: each is written whole, then described beside itself."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from glit.data.records import Sample
from glit.data.schema import dataset_schema
from glit.dataset.manifest import FileEntry, describe_data_file, describe_file
from glit.errors import RunError
from glit.pipeline.executors.protocols import Heartbeat, Resources, Tally
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk
from glit.pipeline.work.tables import disk_errors
from glit.plain import as_plain, from_plain
from glit.stages.pack import DataFile, PackConfig, write_groups
from glit.storage.store import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class PackUnit:
    """A data file and the chunks it draws from."""

    index: int
    """Among the files of all series."""
    file: DataFile
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTask:
    """Writes data files into a folder of the work store; its own worker, with nothing to load."""

    work: Work
    folder: str
    tokenizer: dict[str, Any]
    name: str = "pack"
    loads: str = ""
    needs: Resources = Resources(memory_bytes=600_000_000)

    def open(self, threads: int) -> PackTask:
        return self

    def run(
        self, unit: PackUnit, excluded: Mapping[str, str] | None
    ) -> Generator[Heartbeat, None, Tally]:
        """Write a data file, then its description; the description makes it count. One that an
        earlier run described stays, if its bytes are still those.

        Raises:
            RunError: the disk is full, an image changed, or the file kills its worker.
        """
        if excluded is not None:
            raise RunError(f"pack: writing {unit.file.name} kills its worker; is memory short?")
        target = f"{self.folder}/{unit.file.name}"
        if (rows := self._written(target)) is not None:
            return Tally(rows=rows)
        plan, rows, removed = self.work.plan, 0, list[int]()
        schema = dataset_schema(tokenizer=self.tokenizer, further=plan.flow.dataset_columns)
        with disk_errors(self.work.store.root):
            with self.work.store.atomic(target) as temporary:
                for rows in write_groups(
                    self._samples(unit),
                    temporary,
                    images=self.work.images,
                    config=plan.config(PackConfig),
                    schema=schema,
                    removed=lambda: removed.append(1),
                ):
                    yield Heartbeat(rows=rows, drops=0)
                described = describe_data_file(temporary, rows)
                if removed:
                    described = replace(described, locations_removed=len(removed))
            self.work.store.write(f"{target}.json", to_json(as_plain(described)))
        return Tally(rows=rows)

    def _written(self, target: str) -> int | None:
        """Rows of a finished data file."""
        store = self.work.store
        if not (store.exists(target) and store.exists(f"{target}.json")):
            return None
        try:
            described = from_plain(FileEntry, json.loads(store.read(f"{target}.json")))
        except ValueError:  # the description is damaged
            return None
        with store.local_copy(target) as path:
            plain = replace(described, without_pair=None, locations_removed=None)
            same = describe_file(path, described.rows) == plain
            whole = same and describe_data_file(path, described.rows) == replace(
                described, locations_removed=None
            )
        return described.rows if whole else None

    def _samples(self, unit: PackUnit) -> Iterator[Sample]:
        by_index = {chunk.index: chunk for chunk in unit.chunks}
        for piece in unit.file.pieces:
            samples = self.work.samples("pack", by_index[piece.chunk])
            yield from samples[piece.start : piece.stop]


def descriptions(work: Work, folder: str, files: list[DataFile]) -> dict[str, FileEntry]:
    """The descriptions of finished data files by name; those not written yet are absent."""
    here = work.store.names(folder)
    return {
        file.name: from_plain(FileEntry, json.loads(work.store.read(f"{folder}/{file.name}.json")))
        for file in files
        if file.name in here and f"{file.name}.json" in here
    }
