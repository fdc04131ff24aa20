"""The dataset with its pictures: rows moved into the frames of the files that were found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glit.attaching.found import AMBIGUOUS, Found, FoundPictures
from glit.attaching.moved_row import moved_row
from glit.attaching.placement import Placement
from glit.attaching.user_pictures import UserPictures
from glit.attaching.work_tables import GrowingTable
from glit.data.data_files import series_of_file
from glit.data.records import Drop
from glit.data.schema import (
    ATTACHED,
    CORRECTED,
    DROPS_SCHEMA,
    dataset_schema,
    further_columns,
    hf_feature,
)
from glit.dataset.by_hand import review
from glit.dataset.manifest import (
    Manifest,
    describe_data_file,
    describe_file,
    sum_without_pair,
)
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import pairings_of
from glit.errors import InputError, RunError
from glit.exporters.annotations import PICTURES
from glit.images import decode
from glit.images.location import without_location
from glit.plain import as_plain
from glit.runtime.progress import StageProgress
from glit.stages.pack import Pack, writer_options
from glit.storage.store import Store

_DROPS = "drops.parquet"


class AttachedWriter:
    """Writes the dataset with the pictures that were found; counts what it writes and leaves out.

    Args:
        dataset: the published dataset.
        pictures: the user's pictures.
        found: what was found.

    Raises:
        InputError: a column of the dataset has the name of one that is added.
    """

    def __init__(
        self, dataset: Dataset, pictures: UserPictures, found: FoundPictures
    ) -> None:  # fmt: skip
        self._dataset, self._pictures, self._found = dataset, pictures, found
        self._pairings = pairings_of(dataset.manifest)
        added = [*CORRECTED, ATTACHED] if found.is_cut else [ATTACHED]
        own = [each for each in further_columns(dataset.schema) if each not in added]
        if taken := {name for name, _ in own} & {name for name, _ in added}:
            raise InputError(f"{dataset.path}: has a column {min(taken)} that is not glit's")
        self.further = (*own, *added)
        self._drops: list[dict[str, Any]] = []
        self.dropped_in: Counter[int | None] = Counter()
        self.ways: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    @property
    def changed(self) -> bool:
        """True if the dataset does not hold the samples and boxes that were published."""
        return bool(self.reasons) or self._found.is_cut

    def write(self, folder: Path, progress: StageProgress) -> Manifest:
        """Write all Parquet files; the manifest to write last."""
        dataset, before = self._dataset, self._dataset.manifest
        schema = dataset_schema(tokenizer=as_plain(before.tokenizer), further=self.further)
        progress.begin("attach", total=len(dataset), done=0)
        (folder / "data").mkdir()
        files = {}
        number = 0
        drops = GrowingTable(folder / _DROPS, DROPS_SCHEMA)
        drops.append(dataset.drops().cast(DROPS_SCHEMA))
        for name in dataset.files:
            written = 0
            with pq.ParquetWriter(folder / name, schema, **writer_options(schema)) as writer:
                for index, place in enumerate(dataset.places):
                    if place.path != name:
                        continue
                    rows = list(self._rows(dataset.table(row_group=index), number, name))
                    number += place.num_rows
                    written += len(rows)
                    if rows:
                        table = pa.Table.from_pylist(rows, schema=schema)
                        writer.write_table(table, row_group_size=len(rows))
                    drops.append(pa.Table.from_pylist(self._drops, schema=DROPS_SCHEMA))
                    self._drops.clear()
                    progress.advance(place.num_rows, place.num_rows - len(rows))
            files[name] = describe_data_file(folder / name, written)
        drops.close()
        return self._manifest(folder, files)

    def _rows(self, table: pa.Table, first: int, name: str) -> Iterator[dict[str, Any]]:
        found = self._found.of(first, len(table))
        for sample, row in enumerate(table.to_pylist(), start=first):
            made = self._made(found.get(sample), row)
            if not isinstance(made, Drop):
                self.ways[made[ATTACHED[0]]["how"]] += 1
                yield made
                continue
            self.reasons[made.reason] += 1
            self.dropped_in[series_of_file(name)] += 1
            self._drops.append(
                {key: row[key] for key in ("sample_id", "source_path")}
                | {"stage": "attach", "reason": made.reason, "message": made.message, "attempt": 0}
            )

    def _made(self, found: Found | None, row: dict[str, Any]) -> dict[str, Any] | Drop:
        if found is None:
            return Drop(reason="no_picture", message="none of the files is this picture")
        file = self._pictures.place(found.source, found.path)
        if found.how == AMBIGUOUS:
            return Drop(reason="ambiguous_picture", message=f"{file} may be another's as well")
        data = self._pictures.read(found.source, found.path)
        if hashlib.sha256(data).hexdigest() != found.sha256:
            raise RunError(f"{found.path}: changed since it was looked at; run again")
        pixels = decode(data)
        height, width = pixels.shape[:2]
        size = (row["width"], row["height"])
        placement = found.placement or Placement(left=0, top=0, right=size[0], bottom=size[1])
        if (width, height) != size or found.placement is not None:
            made = moved_row(row, placement, width, height, self._pairings)
            if isinstance(made, Drop):
                return made
            row = made
        told = {"file": file, "sha256": found.sha256, "how": found.how,
                "colours": found.colours, **dataclasses.asdict(placement)}  # fmt: skip
        empty = {"by_hand": [], "review": review()}
        if not self._dataset.manifest.recipe.table(Pack.name).get("keep_location"):
            data = without_location(data)
        path = {"bytes": data, "path": row["source_path"]}
        return {**empty, **row, "image": path, ATTACHED[0]: told}

    def _manifest(self, folder: Path, files: dict[str, Any]) -> Manifest:
        """The manifest; writes the lists of what is left out."""
        before, number = self._dataset.manifest, self.reasons.total()
        if number:
            files[_DROPS] = describe_file(folder / _DROPS, before.files[_DROPS].rows + number)
        source = Store(self._dataset.path)
        for name in before.files.keys() - files.keys() - {PICTURES}:
            (folder / name).write_bytes(source.read(name))
        kept = {name: each for name, each in before.files.items() if name != PICTURES}
        all_files = {**kept, **files}
        reasons = Counter(before.counts.drops)
        reasons.update({f"attach/{reason}": count for reason, count in self.reasons.items()})
        pack = {**before.recipe.table(Pack.name), "image_store": "bytes"}
        added = {name: hf_feature(kind) for name, kind in self.further}
        return dataclasses.replace(
            before,
            recipe=before.recipe.with_table(Pack.name, pack),
            counts=dataclasses.replace(
                before.counts,
                shipped=before.counts.shipped - number,
                dropped=before.counts.dropped + number,
                drops=dict(reasons),
                without_pair=sum_without_pair(all_files),
            ),
            additions=tuple(
                dataclasses.replace(
                    each,
                    shipped=each.shipped - self.dropped_in[place],
                    dropped=each.dropped + self.dropped_in[place],
                )
                for place, each in enumerate(before.additions, start=1)
            ),
            files=all_files,
            columns={**before.columns, **added},
        )
