"""Finished datasets with values changed and the manifest made to agree."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq


def first_file(dataset):
    return sorted((dataset / "data").iterdir())[0]


def edit_manifest(dataset, change) -> None:
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def rewrite(dataset, change) -> None:
    """Change the rows of the first file and make the manifest agree with its bytes."""
    from glit.dataset.manifest import describe_file
    from glit.plain import as_plain

    path = first_file(dataset)
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    described = as_plain(describe_file(path, len(rows)))
    edit_manifest(dataset, lambda m: m["files"].update({f"data/{path.name}": described}))
