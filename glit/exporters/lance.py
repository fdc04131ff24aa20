"""``lance``: the dataset's own columns as a Lance dataset, images included.

dataset.lance/    the columns of docs/data-format.md, images as bytes; if asked, ``embedding``: the
                  whole image by a CLIP, a list of fixed length that Lance searches and indexes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glit.models.clip.opening import open_embedder
from glit.recipes.extras import require

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.exporters import Report


_FILE_ROWS = 20_000
"""Most rows of a file; Lance lets go what it remembers of a file when the file is whole."""
Embed = Callable[[list[bytes]], pa.FixedSizeListArray]


def export_lance(dataset: Dataset, folder: Path, report: Report, *, embeddings: str = "") -> None:
    """Write the dataset as a Lance dataset.

    Args:
        dataset: what is exported.
        folder: where to.
        report: see :func:`glit.exporters.export`.
        embeddings: the CLIP whose image embeddings go in: a name, a folder or a run of glit train.

    Raises:
        MissingExtraError: the package lance is not installed, or what the model needs.
        WeightsError: there is no such model.
        RunError: an embedding is not finite.
    """
    require("lance", needed_for="--to lance")
    import lance

    schema = dataset.schema.remove_metadata()
    embed = None
    if embeddings:
        embed, width = _embedder(embeddings)
        schema = schema.append(pa.field("embedding", pa.list_(pa.float32(), width)))
    raised: list[Exception] = []  # Lance knows only the text of what an iterator raises
    batches = pa.RecordBatchReader.from_batches(
        schema, _noting(_batches(dataset, schema, embed, report), raised)
    )
    try:
        lance.write_dataset(
            batches,
            str(folder / "dataset.lance"),
            max_rows_per_group=100,
            max_rows_per_file=_FILE_ROWS,
        )
    except OSError:
        if raised:
            raise raised[0] from None
        raise


def _noting(batches: Iterator[pa.RecordBatch], raised: list[Exception]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        raised.append(error)
        raise


def _embedder(model: str) -> tuple[Embed, int]:
    """Return a function that embeds image files, and the length of an embedding."""
    import numpy as np

    from glit.images import decode

    loaded = open_embedder(model, needed_for="--embeddings")

    def embed(files: list[bytes]) -> pa.FixedSizeListArray:
        found = loaded.pixels(decode(data) for data in files)
        vectors = np.concatenate(list(found)).astype(np.float32)
        return pa.FixedSizeListArray.from_arrays(vectors.ravel(), loaded.width)

    return embed, loaded.width


def _batches(
    dataset: Dataset, schema: pa.Schema, embed: Embed | None, report: Report
) -> Iterator[pa.RecordBatch]:
    """Row group by row group, pictures that are stored by path read in."""
    place = schema.get_field_index("image")
    for number in range(len(dataset.places)):
        group = dataset.row_group(number)
        paths = group.table.column("image").combine_chunks().field("path")
        files = [group.image(row) for row in range(len(group))]
        data = pa.array(files, pa.binary())
        fields: Any = schema.field("image").type
        images = pa.StructArray.from_arrays([data, paths], fields=list(fields))
        table = group.table.set_column(place, schema.field("image"), images)
        if embed is not None:
            table = table.append_column(schema.field("embedding"), embed(files))
        yield from table.replace_schema_metadata(None).cast(schema).to_batches()
        report(len(group))
