"""Check the rows of a data file before use.

Datasets come from strangers: a ``sample_id`` names files, indices and spans address arrays, boxes
become crops. The checks are over whole columns of a row group, some milliseconds each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from glit.data.rle import checked_mask
from glit.data.schema import (
    BY_HAND,
    GROUNDING,
    MASK,
    META_HUGGINGFACE,
    META_SCHEMA_VERSION,
    META_TOKENIZER,
    PHRASE,
    further_columns,
    hf_feature,
    is_readable,
)
from glit.errors import cut, first_line
from glit.plain import as_plain
from glit.rights.statements import C2PA, MINING, is_rights

if TYPE_CHECKING:
    from glit.dataset.manifest import Manifest

_COMPUTE: Any = pyarrow.compute  # its functions are made at run time
MOST_ROWS = 100_000
"""Most rows of a row group; glit writes 100."""
MOST_BYTES = 1 << 30
"""Most bytes of a row group's columns, uncompressed; glit keeps them under 100 MB, or at one row.
"""
_MOST_TOKENS = 1 << 20
_SLACK = 1e-3
"""A box may reach over the image's edge by this part of its longer side."""
_BOX = ("x0", "y0", "x1", "y1")
_GROUNDED = {"phrases": pa.list_(PHRASE), "groundings": pa.list_(GROUNDING)}
"""Columns that a grounder adds; those of another type are not its own."""
_MASKS = {"masks": pa.list_(MASK)}
_BY_HAND = {"by_hand": pa.list_(BY_HAND)}
_NULLABLE_FIELDS = frozenset({"mean_logprob", "min_logprob", "probability", "support"})
_NULLABLE = frozenset({"image", "image_similarity", "phrase_similarity", "agreement"})


def row_faults(table: pa.Table) -> Iterator[tuple[int, str]]:
    """Find unusable rows: their number in the table, and the fault.

    Only columns that are there are checked; of each fault the first row is named.

    Args:
        table: rows of a data file, of any of its columns.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        yield 0, f"a text or a list is damaged ({str(error).splitlines()[0]})"
        return
    faults = list(nulls(table))
    if not faults:
        faults = [*_identity(table), *_sizes(table)]
        nested = {
            name: _Lists(table.column(name))
            for name in ("sentences", "regions", "pairs", *_GROUNDED, *_MASKS, *_BY_HAND)
            if name in table.column_names and _is_ours(name, table.schema.field(name).type)
        }
        faults += _spans(table, nested)
        faults += _boxes(table, nested)
        faults += [*_indices(nested), *_decided(nested)]
        faults += [] if faults else _masks(table, nested)
        faults += _numbers(nested)
        faults += _similarities(table, nested)
    yield from faults


def file_faults(footer: pq.FileMetaData, name: str, manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with a Parquet file by its footer: columns, metadata or number of rows
    that differ from the manifest, and row groups too large to be read at once.

    Args:
        footer: the footer of the Parquet file.
        name: the file's path in the manifest.
        manifest: the manifest of the dataset.
    """
    schema = footer.schema.to_arrow_schema()
    yield from column_faults(schema, manifest)
    yield from _metadata_faults(schema, manifest)
    rows = manifest.files[name].rows
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    if footer.num_rows != rows:
        yield f"{footer.num_rows} rows, the manifest says {rows}"
    for index, group in enumerate(groups):
        many = group.num_rows > MOST_ROWS
        if many or (group.num_rows > 1 and group.total_byte_size > MOST_BYTES):
            yield (
                f"row group {index} has {group.num_rows} rows and {group.total_byte_size} bytes, "
                f"at most {MOST_ROWS} rows and {MOST_BYTES} bytes are read at once"
            )


def column_faults(schema: pa.Schema, manifest: Manifest) -> Iterator[str]:
    """Compare the columns of a data file with those of the format and of the manifest."""
    further = {name: hf_feature(kind) for name, kind in further_columns(schema)}
    twice = sorted(name for name, number in Counter(schema.names).items() if number > 1)
    if twice:
        yield f"its column {cut(twice[0])} is there more than once"
    elif not is_readable(schema):
        yield "its columns are not those of the schema"
    elif further != manifest.columns:
        names = sorted({*further} ^ {*manifest.columns}) or sorted(further)
        yield f"its further columns are not the manifest's ({cut(', '.join(names))})"


def _metadata_faults(schema: pa.Schema, manifest: Manifest) -> Iterator[str]:
    """Compare a data file's key-value metadata with the schema and the manifest."""
    found: dict[bytes, Any] = {}
    for key in (META_SCHEMA_VERSION, META_TOKENIZER, META_HUGGINGFACE):
        if key not in (schema.metadata or {}):
            yield f"the metadata {key.decode()} is missing"
            continue
        try:
            found[key] = json.loads(schema.metadata[key])
        except (ValueError, RecursionError) as error:
            yield f"the metadata {key.decode()} is damaged ({first_line(error)})"
    if found.get(META_SCHEMA_VERSION, manifest.schema_version) != manifest.schema_version:
        yield "its schema version is not the manifest's"
    tokenizer = as_plain(manifest.tokenizer)
    if found.get(META_TOKENIZER, tokenizer) != tokenizer:
        yield "its tokenizer is not the manifest's"
    if META_HUGGINGFACE in found:
        try:
            named = [*found[META_HUGGINGFACE]["info"]["features"]]
        except (LookupError, TypeError):
            named = []
        if sorted(named) != sorted(schema.names):
            yield f"the metadata {META_HUGGINGFACE.decode()} does not name the columns"


class _Lists:
    """A column of lists of structs as flat arrays."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        whole: Any = _whole(column)
        self.counts = np.diff(whole.offsets.to_numpy())
        self.row = np.repeat(np.arange(len(self.counts)), self.counts)
        """The row that every value belongs to."""
        self._values = whole.flatten()

    def __getitem__(self, field: str) -> np.ndarray:
        return self._values.field(field).to_numpy(zero_copy_only=False)

    def has(self, field: str) -> bool:
        """Return whether the dataset is new enough for a field."""
        return self._values.type.get_field_index(field) >= 0

    def first(self, bad: np.ndarray, what: str) -> Iterator[tuple[int, str]]:
        if bad.any():
            yield int(self.row[np.argmax(bad)]), what


def _whole(column: pa.ChunkedArray) -> Any:
    merged: Any = column.combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def _first(bad: np.ndarray, what: str) -> Iterator[tuple[int, str]]:
    if bad.any():
        yield int(np.argmax(bad)), what


def nulls(table: pa.Table) -> Iterator[tuple[int, str]]:
    """Find missing values: the number of their row in the table, and which is missing."""
    for name in table.column_names:
        if name in _NULLABLE:
            continue
        column = _whole(table.column(name))
        if column.null_count:
            yield int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))), f"{name} is null"
        elif name == "rights" and is_rights(column.type):
            yield from _rights(column)
        elif pa.types.is_struct(column.type):
            yield from _null_fields(name, column, np.arange(len(column)))
        elif pa.types.is_list(column.type):
            rows = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
            yield from _null_fields(name, column.flatten(), rows)


def _null_fields(name: str, values: Any, rows: np.ndarray) -> Iterator[tuple[int, str]]:
    kind = values.type
    fields = [(name, values)]
    if pa.types.is_struct(kind):
        named = [field.name for field in kind if field.name not in _NULLABLE_FIELDS]
        fields += [(f"{name}.{field}", values.field(field)) for field in named]
    for where, found in fields:
        if found.null_count:
            bad = found.is_null().to_numpy(zero_copy_only=False)
            yield int(rows[np.argmax(bad)]), f"{where} holds a null"


def _rights(column: Any) -> Iterator[tuple[int, str]]:
    """Fields of which a picture says nothing are null; some have few values."""
    for name, known in (("mining", (*MINING, None)), ("c2pa", C2PA)):
        if column.type.get_field_index(name) >= 0:
            values = column.field(name)
            odd = _COMPUTE.invert(_COMPUTE.is_in(values, value_set=pa.array(known)))
            yield from _first(odd.to_numpy(zero_copy_only=False), f"its rights.{name} is unknown")


def _identity(table: pa.Table) -> Iterator[tuple[int, str]]:
    if "sample_id" in table.column_names:
        is_hash = _COMPUTE.match_substring_regex(table.column("sample_id"), r"\A[0-9a-f]{64}\z")
        bad = ~_whole(is_hash).to_numpy(zero_copy_only=False).astype(bool)
        yield from _first(bad, "its sample_id is not a SHA-256 in 64 hex digits")


def _sizes(table: pa.Table) -> Iterator[tuple[int, str]]:
    for name in ("width", "height"):
        if name in table.column_names:
            values = _whole(table.column(name)).to_numpy()
            yield from _first(values < 1, f"its {name} is not positive")


def _is_ours(name: str, kind: pa.DataType) -> bool:
    return (_GROUNDED | _MASKS | _BY_HAND).get(name, kind) == kind


def is_grounded_schema(schema: pa.Schema) -> bool:
    """Return whether a dataset has the columns of a grounder."""
    return all(n in schema.names and _is_ours(n, schema.field(n).type) for n in _GROUNDED)


def _spans(table: pa.Table, nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    for name, each in (("sentences", "sentence"), ("phrases", "phrase")):
        if name in nested:
            yield from _spans_of(table, nested[name], each)
    if "sentences" in nested:
        yield from _infinite(nested["sentences"], ("mean_logprob", "min_logprob"))


def _spans_of(table: pa.Table, found: _Lists, each: str) -> Iterator[tuple[int, str]]:
    start, end = found["token_start"], found["token_end"]
    yield from found.first(
        (start < 0) | (start > end) | (end > _MOST_TOKENS), "a token span is impossible"
    )
    start, end = found["char_start"], found["char_end"]
    bad = (start < 0) | (start > end)
    if "caption" in table.column_names:
        length = _whole(_COMPUTE.utf8_length(table.column("caption"))).to_numpy()
        bad |= end > length[found.row]
    yield from found.first(bad, f"a {each}'s character span leaves the caption")


def _boxes(table: pa.Table, nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    if "regions" not in nested:
        return
    found = nested["regions"]
    x0, y0, x1, y1 = (found[name] for name in _BOX)
    bad = ~(np.isfinite(x0 + y0 + x1 + y1) & (x0 < x1) & (y0 < y1) & (x0 >= 0) & (y0 >= 0))
    if {"width", "height"} <= set(table.column_names):
        width, height = (_whole(table.column(name)).to_numpy() for name in ("width", "height"))
        slack = _SLACK * np.maximum(width, height)
        bad |= (x1 > (width + slack)[found.row]) | (y1 > (height + slack)[found.row])
    yield from found.first(bad, "a region's box is empty or leaves the image")
    yield from found.first(~np.isfinite(found["score"]), "a region's score is not finite")


def _masks(table: pa.Table, nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    """Yield the first mask with a fault; the rows are known to have their regions inside the
    image."""
    if not (
        {"masks", "regions"} <= nested.keys() and {"width", "height"} <= set(table.schema.names)
    ):
        return
    masks, regions = nested["masks"], nested["regions"]
    first = np.concatenate([[0], np.cumsum(regions.counts)])
    boxes = np.stack([regions[name] for name in _BOX], axis=1)
    width, height = (table.column(name).to_pylist() for name in ("width", "height"))
    for row, region, counts in zip(masks.row, masks["region"], masks["counts"], strict=True):
        box = tuple(boxes[first[row] + region].tolist())
        try:
            checked_mask(counts, box, height=height[row], width=width[row])
        except ValueError as error:
            yield int(row), f"region {region} has {error}"
            return


_POINTERS = {
    "pairs": ("sentence", "region"),
    "phrases": ("sentence",),
    "groundings": ("phrase", "region"),
    "masks": ("region",),
}
"""By column, its fields that are places in the column of that name's plural."""


def _indices(nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    for name, fields in _POINTERS.items():
        for field in fields if name in nested else ():
            index, column = nested[name][field], nested.get(f"{field}s")
            bad = index < 0
            if column is not None:
                bad |= index >= column.counts[nested[name].row]
            what = f"a {name[:-1]} names a {field} that the sample does not have"
            yield from nested[name].first(bad, what)


def _decided(nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    """Pairs that a person decided; their region -1 is none."""
    if "by_hand" not in nested:
        return
    found = nested["by_hand"]
    for field, first in (("sentence", 0), ("region", -1)):
        bad, column = found[field] < first, nested.get(f"{field}s")
        if column is not None:
            bad |= found[field] >= column.counts[found.row]
        yield from found.first(bad, f"by_hand names a {field} that the sample does not have")


def _numbers(nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    if "groundings" in nested:
        found = nested["groundings"]
        yield from found.first(~np.isfinite(found["score"]), "a grounding's score is not finite")
    if "pairs" not in nested:
        return
    pairs = nested["pairs"]
    yield from pairs.first(~np.isfinite(pairs["similarity"]), "a pair's similarity is not finite")
    yield from _infinite(pairs, ("probability", "support"))


def _infinite(found: _Lists, later: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the first row with an infinite value of each field; fields may be missing or null,
    which is read as NaN."""
    for field in later:
        if found.has(field):
            yield from found.first(np.isinf(found[field]), f"a {field} is infinite")


def _similarities(table: pa.Table, nested: dict[str, _Lists]) -> Iterator[tuple[int, str]]:
    if not {"sentences", "regions"} <= nested.keys():
        return
    sentences, regions = nested["sentences"].counts, nested["regions"].counts
    wanted = {
        "similarity": sentences * regions,
        "image_similarity": sentences,
        "phrase_similarity": sentences * regions,
        "agreement": sentences * regions,
    }
    for name in wanted.keys() & set(table.column_names):
        column = _whole(table.column(name))
        there = ~column.is_null().to_numpy(zero_copy_only=False).astype(bool)
        due = {"similarity": True, "image_similarity": regions > 0}.get(name, False)
        yield from _first(~there & due, f"its {name} is null")
        number = np.diff(column.offsets.to_numpy())
        yield from _first(there & (number != wanted[name]), f"its {name} has another shape")
        values = column.flatten().to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(column)), np.where(there, number, 0))
        if len(bad := ~np.isfinite(values)) and bad.any():
            yield int(rows[np.argmax(bad)]), f"its {name} holds values that are not finite"
