"""Pack: the finished samples become the dataset's Parquet files."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.data_files import file_name
from glit.data.parquet import PINNED
from glit.data.records import Box, Sample
from glit.data.rle import decode_rle, mask_text, read_rle
from glit.errors import RunError
from glit.images import NO_LIMIT, decode, encode_smaller
from glit.images.location import without_location
from glit.plain import limited
from glit.recipes.config import RecipeTable, require_value
from glit.stages.base import Step
from glit.stages.caption import CaptionStage
from glit.stages.pair import PairStage
from glit.stages.propose import ProposeStage
from glit.stages.score import ScoreStage
from glit.stages.split import SplitStage
from glit.storage.store import Store

ROW_GROUP_BYTES = 64 << 20
ROW_OVERHEAD_BYTES = 4096  # text, boxes and similarities of a row, roughly
_UNCOMPRESSED = {"image.bytes"}  # JPEG and PNG do not get smaller
_PARTS = (CaptionStage, SplitStage, ProposeStage, ScoreStage, PairStage)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig(RecipeTable):
    """The layout of the dataset's files."""

    table: ClassVar = "pack"
    image_store: Literal["bytes", "path"] = "bytes"
    """``path`` leaves images where they are and stores only their paths."""
    max_side: int = limited(0, least=32, also=0)
    """Re-encode larger images to this longer side and scale their boxes; 0 is off."""
    keep_location: bool = False
    """Keep the coordinates that EXIF and XMP of images hold; by default they are blanked."""
    min_files: int = limited(8, least=1)
    """Write at least this many data files if there are as many samples, so that training workers
    can share them."""
    max_file_mb: int = limited(400, least=1, most=480)
    """Largest size of a data file, in MB."""
    row_group_rows: int = limited(100, least=1)
    """Rows per row group; fewer if images are large (a group stays under 100 MB)."""

    def check(self) -> None:
        require_value(
            not (self.max_side and self.image_store == "path"),
            "[pack] max_side: images that stay where they are cannot be made smaller; "
            "want image_store = 'bytes'",
        )


class Pack(Step):
    """The finished samples in data files."""

    name = "pack"
    version = 1
    reads = ("*",)
    config = PackConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A run of a chunk's shipped samples."""

    chunk: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of the dataset: its place among those of its series, and what goes into it."""

    index: int
    total: int
    """Number of files of its series."""
    pieces: tuple[Piece, ...]
    series: int = 0

    @property
    def name(self) -> str:
        return file_name(self.index, self.total, series=self.series)

    @property
    def num_rows(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


def cut_files(
    sizes: Sequence[np.ndarray], config: PackConfig, *, series: int = 0, first_chunk: int = 0
) -> list[DataFile]:
    """Return which samples of a series go into which file: consecutive, near equal in bytes, none
    empty.

    Args:
        sizes: per chunk the encoded bytes of its shipped samples, in order.
        config: limits on files. An addition has no least number of them: the first series sees to
            it that training workers have enough.
        series: the first, or an addition.
        first_chunk: number of the series' first chunk among all.
    """
    stored = [
        (each if config.image_store == "bytes" else each * 0) + ROW_OVERHEAD_BYTES for each in sizes
    ]
    counts = [len(each) for each in stored]
    total_rows = sum(counts)
    if not total_rows:
        return []
    weights = np.concatenate(stored).astype(np.int64)
    before = np.cumsum(weights) - weights
    total_bytes = int(weights.sum())
    most = config.max_file_mb << 20
    least = 1 if series else config.min_files
    number = min(total_rows, max(least, -(-total_bytes // most)))
    cuts = _first_rows(weights, before * number // total_bytes, most)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [
        DataFile(
            index=index,
            total=len(cuts) - 1,
            pieces=tuple(_pieces(starts, first, last, first_chunk)),
            series=series,
        )
        for index, (first, last) in enumerate(itertools.pairwise(cuts))
    ]


def _first_rows(weights: np.ndarray, share: np.ndarray, most: int) -> list[int]:
    """Return where files begin: with every share, and before a file grows too large; the end
    besides."""
    total = np.concatenate([[0], np.cumsum(weights)])
    starts = [0]
    while starts[-1] < len(weights):
        row = starts[-1]
        next_share = int(np.searchsorted(share, share[row], side="right"))
        too_large = int(np.searchsorted(total, total[row] + most, side="right")) - 1
        starts.append(max(row + 1, min(next_share, too_large)))
    return starts


def _pieces(starts: np.ndarray, first: int, last: int, first_chunk: int) -> Iterator[Piece]:
    chunk = int(np.searchsorted(starts, first, side="right")) - 1
    while first < last:
        stop = min(last, int(starts[chunk + 1]))
        if first < stop:
            base = int(starts[chunk])
            yield Piece(chunk=first_chunk + chunk, start=first - base, stop=stop - base)
        first = max(first, stop)
        chunk += 1


def write_groups(
    samples: Iterable[Sample],
    path: Path,
    *,
    images: Store,
    config: PackConfig,
    schema: pa.Schema,
    removed: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """Write the samples as one data file; the rows so far after every row group, in the end all.

    Row groups hold ``row_group_rows`` rows, fewer when they would pass 64 MB. ``removed`` is called
    for each image whose coordinates are taken out.

    Raises:
        RunError: an image is not what it was at ingest.
    """
    rows: list[dict[str, Any]] = []
    held = written = 0
    with pq.ParquetWriter(path, schema, **writer_options(schema)) as writer:
        for sample in samples:
            row = dataset_row(sample, images, config)
            data = row["image"]["bytes"]
            if data is not None and not config.keep_location:
                row["image"]["bytes"] = without_location(data)
                if row["image"]["bytes"] is not data:
                    removed()
            rows.append(row)
            held += len(row["image"]["bytes"] or b"") + ROW_OVERHEAD_BYTES
            if len(rows) >= config.row_group_rows or held >= ROW_GROUP_BYTES:
                written += _flush(writer, rows, schema)
                held = 0
                yield written
        written += _flush(writer, rows, schema)
    yield written


def _flush(writer: pq.ParquetWriter, rows: list[dict[str, Any]], schema: pa.Schema) -> int:
    number = len(rows)
    if rows:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=number)
        rows.clear()
    return number


def writer_options(schema: pa.Schema) -> dict[str, Any]:
    """Return how data files are written, byte for byte the same for the same rows."""
    codec = PINNED["compression"]
    per_column = {name: "none" if name in _UNCOMPRESSED else codec for name in _leaves(schema)}
    levels = {name: PINNED["compression_level"] for name, c in per_column.items() if c == codec}
    # small write batches let a page end within a group of large images: cheap random access
    return {
        **PINNED,
        "compression": per_column,
        "compression_level": levels,
        "write_batch_size": 8,
    }


def _leaves(schema: pa.Schema) -> Iterator[str]:
    def below(kind: pa.DataType, path: str) -> Iterator[str]:
        if pa.types.is_list(kind):
            yield from below(kind.value_type, f"{path}.list.element")
        elif pa.types.is_struct(kind):
            for inner in kind:
                yield from below(inner.type, f"{path}.{inner.name}")
        else:
            yield path

    for outer in schema:
        yield from below(outer.type, outer.name)


def dataset_row(sample: Sample, images: Store, config: PackConfig) -> dict[str, Any]:
    """A finished sample as a row of the dataset."""
    data = None
    if config.image_store == "bytes":
        data = _image_bytes(sample, images)
        if config.max_side and max(sample.width, sample.height) > config.max_side:
            data, sample = _smaller(data, sample, config.max_side)
    return {
        "sample_id": sample.sample_id,
        "image": {"bytes": data, "path": sample.source_path},
        "source_path": sample.source_path,
        "width": sample.width,
        "height": sample.height,
        **{name: value for part in _PARTS for name, value in part.row(sample).items()},
        **sample.extra,
    }


def _image_bytes(sample: Sample, images: Store) -> bytes:
    try:
        data = images.read(sample.source_path)
    except OSError as error:
        raise RunError(
            f"{sample.source_path}: gone since ingest ({error.strerror or error}); put it back, "
            "or run glit build again to take the folder as it is now"
        ) from error
    if hashlib.sha256(data).hexdigest() != sample.sample_id:
        raise RunError(
            f"{sample.source_path}: changed since ingest; put it back, or run glit build again to "
            "take the folder as it is now"
        )
    return data


def _not_empty(box: np.ndarray) -> np.ndarray:
    """The box, with its far corner moved where 32 bits a number tell it from the near one."""
    near = np.nextafter(box[:2].astype(np.float32), np.float32(np.inf), dtype=np.float32)
    return np.concatenate([box[:2], np.maximum(box[2:], near)])


def _smaller(data: bytes, sample: Sample, max_side: int) -> tuple[bytes, Sample]:
    smaller, width, height = encode_smaller(
        decode(data, max_pixels=NO_LIMIT), max_side=max_side, original=data
    )
    scale = np.array([width / sample.width, height / sample.height] * 2)
    regions = tuple(
        dataclasses.replace(
            region, box=Box(**dict(zip(("x0", "y0", "x1", "y1"), xyxy.tolist(), strict=True)))
        )
        for region in sample.regions or ()
        for xyxy in [_not_empty(np.array(region.box.xyxy) * scale)]
    )
    extra = dict(sample.extra)
    if "masks" in extra:
        extra["masks"] = [
            {**each, "counts": _smaller_mask(each["counts"], sample, width, height)}
            for each in extra["masks"]
        ]
    return smaller, dataclasses.replace(
        sample, width=width, height=height, regions=regions, extra=extra
    )


def _smaller_mask(counts: str, sample: Sample, width: int, height: int) -> str:
    """A mask's run lengths at the size of the smaller image."""
    size = {"height": sample.height, "width": sample.width}
    mask = decode_rle(read_rle(counts, **size), **size)
    return mask_text(mask, height=height, width=width)
