"""``glit select``: some rows of a finished dataset as a new one, or as several parts."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.curate.derive import finish, write_pictures
from glit.curate.distinct import Repeat, find_repeats, groups_alike, repeats_table
from glit.curate.row_writer import Rows, write_rows
from glit.data.hash_index import SURE_BITS
from glit.data.parquet import PINNED, write_parquet
from glit.data.schema import DROPS_SCHEMA, DUPLICATES_SCHEMA
from glit.dataset.manifest import (
    MANIFEST,
    Counts,
    Manifest,
    SourceDataset,
    describe_file,
    sum_without_pair,
)
from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.dataset.select import select, split_rows
from glit.errors import UserError
from glit.plain import as_plain
from glit.runtime.progress import StageProgress
from glit.stages.pack import Pack, PackConfig
from glit.storage.outputs import new_folder
from glit.storage.store import Store

_PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """A selection of rows: those of a condition, of these a sample, and this in parts."""

    where: str = ""
    sample: int | None = None
    by: str = ""
    split: Mapping[str, float] = dataclasses.field(default_factory=dict)
    together: str = ""
    near: int | None = None
    distinct: float | None = None
    model: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise UserError(f"--sample {self.sample}: want 1 or more")
        if self.by.strip() and self.sample is None:
            raise UserError(f"--by {self.by}: balances a sample; add --sample N")
        if self.together.strip() and not self.split:
            raise UserError(f"--together {self.together}: is for --split; add --split NAME=SHARE,…")
        if self.near is not None:
            if not self.split or self.together.strip():
                raise UserError(
                    f"--near {self.near}: puts images that look alike into one part of --split, "
                    "in the place of --together"
                )
            if not 0 <= self.near <= SURE_BITS:
                raise UserError(f"--near {self.near}: want 0 to {SURE_BITS} of 64 bits")
        if self.distinct is not None and not 0 < self.distinct <= 1:
            raise UserError(f"--distinct {self.distinct}: want a cosine above 0, at most 1")
        if bool(self.model) != (self.distinct is not None):
            raise UserError("--distinct COSINE and --model MODEL go together: it embeds the images")
        for name, share in self.split.items():
            if not _PART_NAME.fullmatch(name):
                raise UserError(f"--split: {name!r} names no folder; want letters and digits")
            if not 0 < share <= 1:
                raise UserError(f"--split {name}={share:g}: want a share above 0, at most 1")
        total = sum(self.split.values())
        if self.split and not math.isclose(total, 1, abs_tol=1e-6):
            raise UserError(f"--split: the shares sum to {total:g}, want 1")

    def noted(self) -> dict[str, Any]:
        """Return the values that the manifest keeps of it: those that were given, and the seed."""
        values = dataclasses.asdict(self)
        given = {k: v for k, v in values.items() if v or (k == "near" and v is not None)}
        return {"seed": self.seed, **given}


def select_rows(
    dataset: Dataset, output: Path, choice: RowSelection, progress: StageProgress
) -> dict[str, Manifest]:
    """The work of :func:`glit.api.select`; the manifest of every part by its name, "" for a dataset
    of one.
    """
    with new_folder(output) as folder:
        with connect(dataset) as connection:
            chosen = select(
                dataset, connection, where=choice.where, most=choice.sample,
                by=choice.by.strip(), seed=choice.seed,
            ).numbers  # fmt: skip
            noted, repeats = choice.noted(), None
            if choice.distinct is not None:
                repeats, digest = find_repeats(
                    dataset, np.asarray(chosen, np.int64), cosine=choice.distinct,
                    model=choice.model, progress=progress,
                )  # fmt: skip
                name = Path(choice.model).name if Path(choice.model).is_dir() else choice.model
                noted |= {"model": name, "model_sha256": digest}
                left_out = {each.number for each in repeats}
                chosen = tuple(number for number in chosen if number not in left_out)
            parts = {"": np.asarray(chosen, np.int64)}
            if choice.split:
                groups = None
                if choice.near is not None:
                    groups = groups_alike(
                        dataset, parts[""], bits=choice.near, progress=progress
                    )  # fmt: skip
                parts = split_rows(
                    dataset, connection, chosen, choice.split, groups=groups,
                    together=choice.together.strip() or "sample_id", seed=choice.seed,
                )  # fmt: skip
        progress.begin("select", total=len(chosen), done=0, drops=False)
        manifests = {}
        for part, numbers in parts.items():
            below = folder / part
            told = {**noted, **({"part": part} if part else {})}
            manifest = manifests[part] = _write_part(
                below, dataset, numbers, repeats, told, progress
            )
            name = f"{output.name}-{part}" if part else output.name
            finish(below, manifest, name=name, sources=[dataset])
    return manifests


def source_of(dataset: Dataset, more: Mapping[str, Any] | None = None) -> SourceDataset:
    """Return which dataset rows were taken from: its folder's name, its manifest's hash, its rows.

    Args:
        dataset: that one.
        more: what was done to the rows.
    """
    return SourceDataset(
        name=Path(dataset.path if "://" in dataset.path else Path(dataset.path).resolve()).name,
        manifest_sha256=hashlib.sha256(Store(dataset.path).read(MANIFEST)).hexdigest(),
        rows=len(dataset),
        more=more or {},
    )


def _write_part(
    folder: Path,
    dataset: Dataset,
    numbers: np.ndarray,
    repeats: list[Repeat] | None,
    noted: dict[str, Any],
    progress: StageProgress,
) -> Manifest:
    """Write the Parquet files of a part; its manifest. Repeats belong to the part of what stays."""
    before = dataset.manifest
    files = write_rows(
        folder,
        [Rows(dataset=dataset, numbers=numbers)],
        pack=before.recipe.config(Pack.name, PackConfig),
        report=progress.advance,
    )
    duplicates = DUPLICATES_SCHEMA.empty_table()
    repeated = np.empty(0, np.int64)
    if repeats is not None:
        shipped = set(numbers.tolist())
        own = [each for each in repeats if each.kept in shipped]
        duplicates = repeats_table(dataset, own)
        repeated = np.array([each.number for each in own], np.int64)
    counts = Counts(
        ingested=len(dataset),
        shipped=len(numbers),
        dropped=(left := len(dataset) - len(numbers) - len(repeated)),
        duplicates=len(repeated),
        drops={"select/not_selected": left} if left else {},
        without_pair=sum_without_pair(files),
    )
    _write_drops(folder / "drops.parquet", dataset, np.concatenate([numbers, repeated]))
    write_parquet(duplicates, folder / "duplicates.parquet")
    files["drops.parquet"] = describe_file(folder / "drops.parquet", left)
    files["duplicates.parquet"] = describe_file(folder / "duplicates.parquet", len(repeated))
    files |= write_pictures(folder, dataset, files)
    earlier = {} if before.selection is None else {"before": as_plain(before.selection)}
    return dataclasses.replace(
        before,
        counts=counts,
        files=files,
        additions=(),
        selection=source_of(dataset, as_plain({**noted, **earlier})),
    )


def _write_drops(path: Path, dataset: Dataset, numbers: np.ndarray) -> None:
    """List the rows that are not among these, a row group for each data file."""
    left = np.ones(len(dataset), bool)
    left[numbers] = False
    with pq.ParquetWriter(path, DROPS_SCHEMA, **PINNED) as writer:
        for name, first in dataset.first_rows().items():
            table = dataset.table(["sample_id", "source_path"], file=name)
            table = table.filter(pa.array(left[first : first + len(table)]))
            said = {"stage": "select", "reason": "not_selected", "message": "", "attempt": 0}
            for key, value in said.items():
                table = table.append_column(key, pa.repeat(value, len(table)))
            if len(table):
                writer.write_table(table.cast(DROPS_SCHEMA))
