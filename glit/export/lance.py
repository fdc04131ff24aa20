"""``lance``: the dataset's own columns as a Lance dataset, every picture inside.

dataset.lance/    the columns of docs/schema.md, images as bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glit.extras import require

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset


def export_lance(dataset: Dataset, folder: Path) -> None:
    """See :data:`glit.export.Exporter`.

    Raises:
        MissingExtraError: the package lance is not installed.
    """
    require("lance", needed_for="--to lance")
    import lance

    schema = dataset.schema.remove_metadata()
    batches = pa.RecordBatchReader.from_batches(schema, _batches(dataset, schema))
    lance.write_dataset(batches, str(folder / "dataset.lance"), max_rows_per_group=100)


def _batches(dataset: Dataset, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Row group by row group, pictures that are stored by path read in."""
    place = schema.get_field_index("image")
    for number in range(len(dataset.places)):
        group = dataset.row_group(number)
        paths = group.table.column("image").combine_chunks().field("path")
        data = pa.array([group.image(row) for row in range(len(group))], pa.binary())
        fields: Any = schema.field("image").type
        images = pa.StructArray.from_arrays([data, paths], fields=list(fields))
        table = group.table.set_column(place, schema.field("image"), images)
        yield from table.replace_schema_metadata(None).cast(schema).to_batches()
