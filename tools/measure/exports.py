"""Memory of every exporter on a small and on a large dataset: it should be the same.

python -m tools.measure.exports [--rows 100000] [--to coco ...]

The dataset repeats a hundred scenes of 64 pixels under new names. Each export runs in a process of
its own, and what it wrote is removed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import glit
from glit.bench.harness import Row, in_own_process
from glit.bench.machine import peak_mb, resident_mb
from glit.dataset.manifest import MANIFEST, describe_data_file
from glit.dataset.reader import Dataset
from glit.exporters import EXPORTERS, export
from glit.scenes import write_scenes
from glit.stages.pack import writer_options
from glit.storage.store import to_json
from tools.measure.parts import run_parts

SCENES = 100
"""As many as pack puts in a row group: footers, which a reader keeps, grow with those."""
ROWS_A_FILE = 20_000


def main() -> None:
    """Megabytes and seconds of each format, at a tenth of the rows and at all of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.exports", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--to", nargs="*", default=list(EXPORTERS))
    run_parts(parser, {"exports": exports})


def exports(arguments: argparse.Namespace) -> Iterator[Row]:
    """Both sizes of every format."""
    with tempfile.TemporaryDirectory() as folder:
        here, sizes = Path(folder), (arguments.rows // 10, arguments.rows)
        _build(here)
        for rows in sizes:
            repeat(here / "dataset", here / str(rows), rows)
        for name in arguments.to:
            found = {rows: in_own_process(measured, here / str(rows), name) for rows in sizes}
            small, large = (each["peak_mb"] for each in found.values())
            yield {"format": name, "rows": found, "ratio": large / small}


def _build(here: Path) -> None:
    write_scenes(here / "scenes", num=SCENES, seed=4_000_000, size=64)
    glit.build(
        here / "scenes" / "images", here / "dataset", recipe="mini", executor="local", quiet=True,
        captions=here / "scenes" / "captions.jsonl",
    )  # fmt: skip


def repeat(source: Path, target: Path, rows: int) -> None:
    """A dataset of so many rows, made of another's under new identifiers."""
    dataset = Dataset(str(source))
    table = pa.concat_tables(dataset.row_group(i).table for i in range(len(dataset.places)))
    (target / "data").mkdir(parents=True)
    manifest = json.loads((source / MANIFEST).read_text())
    files: dict[str, dict[str, Any]] = {}
    number, options = -(-rows // ROWS_A_FILE), writer_options(dataset.schema)
    place = table.schema.get_field_index("sample_id")
    for index, first in enumerate(range(0, rows, ROWS_A_FILE)):
        name = f"data/train-{index:05d}-of-{number:05d}.parquet"
        last = min(first + ROWS_A_FILE, rows)
        with pq.ParquetWriter(target / name, dataset.schema, **options) as writer:
            for start in range(first, last, len(table)):
                some = table.slice(0, min(len(table), last - start))
                texts = (str(start + i).encode() for i in range(len(some)))
                ids = pa.array([hashlib.sha256(text).hexdigest() for text in texts])
                writer.write_table(some.set_column(place, some.schema.field(place), ids))
        files[name] = describe_data_file(target / name, last - first)
    for name in ("drops.parquet", "duplicates.parquet"):
        shutil.copy(source / name, target / name)
        files[name] = manifest["files"][name]
    manifest["files"] = files
    manifest["counts"] |= {"ingested": rows, "shipped": rows}
    (target / MANIFEST).write_bytes(to_json(manifest))


def measured(dataset: Path, name: str) -> dict[str, float]:
    """Peak of resident memory and seconds of one export, in this process."""
    opened = Dataset(str(dataset))
    before = resident_mb()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        export(opened, to=name, output=Path(folder) / "out")
        seconds = time.perf_counter() - started
    return {"opened_mb": before, "peak_mb": peak_mb(), "seconds": seconds}


if __name__ == "__main__":
    main()
