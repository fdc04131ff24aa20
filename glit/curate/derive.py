"""Write a dataset from finished ones: data files, drops, other files, card, manifest.

:func:`change_rows` keeps the files and row groups of a dataset;
:func:`glit.curate.row_writer.write_rows` cuts the rows of several anew. :func:`finish` ends both.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from glit.curate.row_writer import Report, filled, packed_schema, write_tables
from glit.data.bounded_parquet import BoundedParquet
from glit.data.data_files import series_of_file
from glit.data.parquet import PINNED, write_parquet
from glit.data.records import Drop
from glit.data.schema import (
    DROPS_SCHEMA,
    PICTURES,
    PICTURES_SCHEMA,
    Columns,
    further_columns,
    hf_feature,
)
from glit.dataset.card import dataset_card
from glit.dataset.columns import RowGroup
from glit.dataset.croissant import CROISSANT, croissant
from glit.dataset.manifest import (
    MANIFEST,
    Certificate,
    FileEntry,
    Manifest,
    SeriesCounts,
    describe_file,
    sum_without_pair,
)
from glit.dataset.mini_models import dataset_caution
from glit.dataset.reader import Dataset
from glit.dataset.statistics import dataset_statistics
from glit.errors import InputError
from glit.storage.store import Store

Change = Callable[[RowGroup], tuple[pa.Table, Mapping[int, Drop]]]
"""Returns the rows that a row group becomes, and by number in the group those that are dropped."""
CountsT = TypeVar("CountsT", bound=SeriesCounts)
_DROPS = "drops.parquet"
_COMPUTE: Any = pyarrow.compute  # its functions are made at run time
_VOID = (
    "the certificate is void here ({}): it is of other data. A random part has that share of wrong "
    "ones on average; certify the new dataset for a claim of its own"
)


def change_rows(
    dataset: Dataset,
    folder: Path,
    change: Change | None,
    *,
    stage: str = "",
    added: Columns = (),
    values: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
    processes: int = 1,
    report: Report = lambda rows: None,
) -> Manifest:
    """Write the Parquet files of a dataset with other rows in the same files and row groups, and
    copy its other files.

    Args:
        dataset: a finished one.
        folder: of the new dataset.
        change: of the row groups, in order; None copies the data files.
        stage: that the drops name.
        added: columns that rows get if the dataset does not have them.
        values: of added columns in rows before the change; a column that is not named has nulls.
        without: files that the new dataset does not have.
        processes: how many write files; several want a ``change`` that can be pickled.
        report: see :data:`Report`; several processes report whole files.

    Returns:
        The manifest with the new files, columns and balance; :func:`finish` writes it.

    Raises:
        InputError: a column has the name of an added one and another type, or no row is left.
        DatasetError: a file of the dataset is damaged.
    """
    before = dataset.manifest
    schema = packed_schema(dataset, added)
    (folder / "data").mkdir(parents=True)
    write = partial(_write_file, dataset, folder, change, schema, values or {}, stage)
    written = _each_file(write, dataset.files, processes, report)
    drops = pa.concat_tables([written[name][1] for name in dataset.files])
    reasons = Counter(f"{stage}/{reason}" for reason in drops["reason"].to_pylist())
    if len(drops) == len(dataset):
        numbers = ", ".join(f"{number:,} {reason}" for reason, number in sorted(reasons.items()))
        raise InputError(f"{dataset.path}: no sample would be left ({numbers})")
    for name in before.files.keys() - before.data_files.keys() - {*without}:
        _copy(dataset, name, folder)
    files = {name: each for name, each in before.files.items() if name not in without}
    files |= {name: entry for name, (entry, _) in written.items()}
    if len(drops):
        drops = pa.concat_tables([dataset.drops().cast(DROPS_SCHEMA), drops])
        write_parquet(drops, folder / _DROPS)
        files[_DROPS] = describe_file(folder / _DROPS, len(drops))
        if PICTURES in files:
            files |= write_pictures(folder, dataset, files)
    reasons.update(before.counts.drops)
    dropped = Counter[int | None]()
    for name, (_, own) in written.items():
        dropped[series_of_file(name)] += len(own)
    counts = dataclasses.replace(
        _without(before.counts, dropped.total()),
        drops=dict(reasons),
        without_pair=sum_without_pair(files),
    )
    return dataclasses.replace(
        before,
        counts=counts,
        additions=tuple(
            _without(addition, dropped[series])
            for series, addition in enumerate(before.additions, start=1)
        ),
        files=files,
        columns={name: hf_feature(kind) for name, kind in further_columns(schema)},
    )


def _without(counts: CountsT, number: int) -> CountsT:
    """A balance with so many more that are dropped."""
    return dataclasses.replace(
        counts, shipped=counts.shipped - number, dropped=counts.dropped + number
    )


def _each_file(
    write: Callable[..., tuple[FileEntry, pa.Table]],
    names: Sequence[str],
    processes: int,
    report: Report,
) -> dict[str, tuple[FileEntry, pa.Table]]:
    """Write data files; return by name the manifest's entry and the drops."""
    number = min(processes, len(names))
    if number == 1:
        return {name: write(name, report=report) for name in names}
    written: dict[str, tuple[FileEntry, pa.Table]] = {}
    # spawned ones would end as this interpreter does, while their thread runs: DuckDB complains
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(number, mp_context=context, initializer=end_with_parent) as pool:
        tasks = {pool.submit(write, name): name for name in names}
        for task in as_completed(tasks):
            written[tasks[task]] = entry, drops = task.result()
            report(entry.rows + len(drops))
    return written


def end_with_parent() -> None:
    """Exit when the parent process has ended, even if it was killed, instead of waiting for work
    forever."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def _write_file(
    dataset: Dataset,
    folder: Path,
    change: Change | None,
    schema: pa.Schema,
    values: Mapping[str, Any],
    stage: str,
    name: str,
    *,
    report: Report = lambda rows: None,
) -> tuple[FileEntry, pa.Table]:
    """Write a data file; return the manifest's entry and the drops."""
    if change is None:
        _copy(dataset, name, folder)
        entry = dataset.manifest.files[name]
        report(entry.rows)
        return entry, DROPS_SCHEMA.empty_table()
    drops: list[dict[str, Any]] = []

    def changed() -> Iterator[pa.Table]:
        for index, place in enumerate(dataset.places):
            if place.path == name:
                table = filled(dataset, index, schema, values)
                group = RowGroup(
                    table, dataset.stored_image, name=f"{name}, row group {place.index}"
                )
                rows, left_out = change(group)
                assert len(rows) + len(left_out) == len(group), "a row vanished"
                drops.extend(
                    {key: group.value(key, row) for key in ("sample_id", "source_path")}
                    | {"stage": stage, **dataclasses.asdict(drop)}
                    for row, drop in sorted(left_out.items())
                )
                yield rows
                report(len(group))

    entry = write_tables(folder / name, schema, changed())
    return entry, pa.Table.from_pylist(drops, schema=DROPS_SCHEMA)


def _copy(dataset: Dataset, name: str, folder: Path) -> None:
    with Store(dataset.path).local_copy(name) as path:
        shutil.copyfile(path, folder / name)


def write_pictures(
    folder: Path, dataset: Dataset, files: Mapping[str, FileEntry]
) -> dict[str, FileEntry]:
    """Copy the rows of ``pictures.parquet`` that belong to samples of a new dataset. Returns the
    manifest's entry; empty if the source has no such file.

    Args:
        folder: of the new dataset, its data files all written.
        dataset: whose rows it holds.
        files: its files by name.
    """
    if PICTURES not in dataset.manifest.files:
        return {}
    names = [name for name in files if name.startswith("data/")]
    ids = [pq.read_table(folder / name, columns=["sample_id"])["sample_id"] for name in names]
    wanted = pa.chunked_array([chunk for each in ids for chunk in each.chunks], pa.string())
    number = 0
    with (
        pq.ParquetWriter(folder / PICTURES, PICTURES_SCHEMA, **PINNED) as writer,
        Store(dataset.path).local_copy(PICTURES) as path,
        BoundedParquet(path) as file,
    ):
        for batch in file.iter_batches(1024):
            rows = pa.Table.from_batches([batch]).cast(PICTURES_SCHEMA)
            rows = rows.filter(_COMPUTE.is_in(rows["sample_id"], value_set=wanted))
            writer.write_table(rows)
            number += len(rows)
    return {PICTURES: describe_file(folder / PICTURES, number)}


def finish(
    folder: Path,
    manifest: Manifest,
    *,
    name: str,
    sources: Sequence[Dataset],
    certificates: Sequence[Certificate] = (),
) -> None:
    """Write what is made from the manifest, and the manifest last.

    A warning names the certificates of the sources that are void for these files, unless a new one
    of the same kind takes their place; their files are removed.

    Args:
        folder: of the dataset, its Parquet files all written.
        manifest: of it.
        name: of the dataset.
        sources: the datasets that its rows were in.
        certificates: of these very files.
    """
    void = [
        each
        for source in sources
        for each in source.manifest.certificates
        if each not in certificates
    ]
    kept = {file for each in certificates for file in (each.verdicts, each.opinions)}
    gone = {file for each in void for file in (each.verdicts, each.opinions) if file} - kept
    for file in gone:
        (folder / file).unlink(missing_ok=True)
    for each in void:
        if each.plan.claim.of not in {new.plan.claim.of for new in certificates}:
            warnings.warn(f"{name}: {_VOID.format(each.claim)}", stacklevel=2)
    files = {file: entry for file, entry in manifest.files.items() if file not in gone}
    manifest = dataclasses.replace(manifest, files=files, certificates=tuple(certificates))
    figures = dataset_statistics(Store(folder), manifest)
    caution = next(filter(None, map(dataset_caution, sources)), "")
    (folder / "README.md").write_text(dataset_card(manifest, figures, caution), encoding="utf-8")
    (folder / CROISSANT).write_bytes(croissant(manifest, name=name))
    (folder / MANIFEST).write_bytes(manifest.as_bytes())
