"""Check the rows of a data file: the reader before use, ``glit verify`` all of them.

Datasets come from strangers: a ``sample_id`` names files, indices and spans address arrays, boxes
become crops. The checks are over whole columns of a row group, some milliseconds each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
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
from glit.dataset.columns import NestedColumn, whole
from glit.errors import cut, first_line
from glit.inputs.rights.statements import C2PA, MINING, is_rights
from glit.plain import as_plain

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
"""A box may reach over the image's edge by this part of its longer side, a cosine over 1."""
_BOX = ("x0", "y0", "x1", "y1")
_GROUNDED = {"phrases": pa.list_(PHRASE), "groundings": pa.list_(GROUNDING)}
"""Columns that a grounder adds; those of another type are not its own."""
_MASKS = {"masks": pa.list_(MASK)}
_BY_HAND = {"by_hand": pa.list_(BY_HAND)}
_NULLABLE_FIELDS = frozenset({"mean_logprob", "min_logprob", "probability", "support"})
_NULLABLE = frozenset({"image_similarity", "phrase_similarity", "agreement"})


Faults = Iterator[tuple[int, str]]
"""Numbers of rows in a table, each with what is wrong with the row."""


def row_faults(table: pa.Table) -> Faults:
    """Yield every fault of every unusable row, check by check; the reader stops at the first.

    Only columns that are there are checked; of a row that lacks values, nothing else.

    Args:
        table: rows of a data file, of any of its columns.
    """
    if fault := damage(table):
        yield 0, fault
        return
    numbers = np.arange(len(table))
    lacking = set()
    for row, fault in nulls(table):
        lacking.add(row)
        yield row, fault
    if lacking:
        numbers = np.delete(numbers, sorted(lacking))
        table = table.filter(pa.array(np.isin(np.arange(len(table)), numbers)))
    for row, fault in _value_faults(table):
        yield int(numbers[row]), fault


def damage(table: pa.Table) -> str:
    """Return what no value of a table can be read for; empty if there is nothing."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"a text or a list is damaged ({str(error).splitlines()[0]})"
    return ""


def _value_faults(table: pa.Table) -> Faults:
    nested = {
        name: NestedColumn(table.column(name))
        for name in ("sentences", "regions", "pairs", *_GROUNDED, *_MASKS, *_BY_HAND)
        if name in table.column_names and _is_ours(name, table.schema.field(name).type)
    }
    bad = set()
    for row, fault in chain(
        _identity(table),
        _sizes(table),
        _spans(table, nested),
        _boxes(table, nested),
        _indices(nested),
        _numbers(nested),
        _similarities(table, nested),
    ):
        bad.add(row)
        yield row, fault
    yield from _masks(table, nested, bad)


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


def _rows(bad: np.ndarray, what: str) -> Faults:
    return ((int(row), what) for row in np.flatnonzero(bad))


def _values(nested: dict[str, NestedColumn], name: str, bad: np.ndarray, what: str) -> Faults:
    """Name the bad values of a column, and where in their rows they are."""
    column = nested[name]
    for at in np.flatnonzero(bad):
        row = int(column.row[at])
        yield row, f"{what} ({name}[{at - column.start[row]}])"


def nulls(table: pa.Table) -> Faults:
    """Find missing values: the number of their row in the table, and which is missing."""
    for name in table.column_names:
        if name in _NULLABLE:
            continue
        column = whole(table.column(name))
        if column.null_count:
            yield from _rows(_is_null(column), f"{name} is null")
        elif name == "rights" and is_rights(column.type):
            yield from _rights(column)
        elif pa.types.is_struct(column.type) and name != "image":  # its bytes, or its path
            yield from _null_fields(name, column, np.arange(len(column)))
        elif pa.types.is_list(column.type):
            rows = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
            yield from _null_fields(name, column.flatten(), rows)


def _is_null(values: Any) -> np.ndarray:
    return values.is_null().to_numpy(zero_copy_only=False).astype(bool)


def _null_fields(name: str, values: Any, rows: np.ndarray) -> Faults:
    kind = values.type
    fields = [(name, values)]
    if pa.types.is_struct(kind):
        named = [field.name for field in kind if field.name not in _NULLABLE_FIELDS]
        fields += [(f"{name}.{field}", values.field(field)) for field in named]
    for where, column in fields:
        if column.null_count:
            for row in np.unique(rows[_is_null(column)]):
                yield int(row), f"{where} holds a null"


def _rights(column: Any) -> Faults:
    """Fields of which a picture says nothing are null; some have few values."""
    for name, known in (("mining", (*MINING, None)), ("c2pa", C2PA)):
        if column.type.get_field_index(name) >= 0:
            values = column.field(name)
            odd = _COMPUTE.invert(_COMPUTE.is_in(values, value_set=pa.array(known)))
            yield from _rows(odd.to_numpy(zero_copy_only=False), f"its rights.{name} is unknown")


def _identity(table: pa.Table) -> Faults:
    if "sample_id" in table.column_names:
        is_hash = _COMPUTE.match_substring_regex(table.column("sample_id"), r"\A[0-9a-f]{64}\z")
        bad = ~whole(is_hash).to_numpy(zero_copy_only=False).astype(bool)
        yield from _rows(bad, "its sample_id is not a SHA-256 in 64 hex digits")


def _sizes(table: pa.Table) -> Faults:
    for name in ("width", "height"):
        if name in table.column_names:
            yield from _rows(
                whole(table.column(name)).to_numpy() < 1, f"its {name} is not positive"
            )


def _is_ours(name: str, kind: pa.DataType) -> bool:
    return (_GROUNDED | _MASKS | _BY_HAND).get(name, kind) == kind


def is_grounded_schema(schema: pa.Schema) -> bool:
    """Return whether a dataset has the columns of a grounder."""
    return all(n in schema.names and _is_ours(n, schema.field(n).type) for n in _GROUNDED)


def _spans(table: pa.Table, nested: dict[str, NestedColumn]) -> Faults:
    if "sentences" in nested:
        column = nested["sentences"]
        yield from _rows(column.counts == 0, "it has no sentence, at least one is due")
        yield from _spans_of(table, nested, "sentences", least=1)
        follows = np.diff(column.row, prepend=-1) == 0
        bad = follows & (column["char_start"] < np.roll(column["char_end"], 1))
        yield from _values(nested, "sentences", bad, "a sentence overlaps the one before")
        yield from _infinite(nested, "sentences", ("mean_logprob", "min_logprob"))
    if "phrases" in nested:
        yield from _spans_of(table, nested, "phrases", least=0)


def _spans_of(table: pa.Table, nested: dict[str, NestedColumn], name: str, *, least: int) -> Faults:
    """Check the spans of sentences or phrases.

    Args:
        table: its captions, if they are there.
        nested: see :func:`_value_faults`.
        name: of the column.
        least: tokens of a span, and before the first one.
    """
    column = nested[name]
    start, end = column["token_start"], column["token_end"]
    bad = (start < least) | (end.astype(np.int64) - start < least) | (end > _MOST_TOKENS)
    yield from _values(nested, name, bad, "a token span is empty or impossible")
    start, end = column["char_start"], column["char_end"]
    bad = (start < 0) | (start > end)
    if "caption" in table.column_names:
        length = whole(_COMPUTE.utf8_length(table.column("caption"))).to_numpy()
        bad |= end > length[column.row]
    yield from _values(nested, name, bad, f"a {name[:-1]}'s character span leaves the caption")


def _boxes(table: pa.Table, nested: dict[str, NestedColumn]) -> Faults:
    if "regions" not in nested:
        return
    column = nested["regions"]
    x0, y0, x1, y1 = (column[name] for name in _BOX)
    bad = ~(np.isfinite(x0 + y0 + x1 + y1) & (x0 < x1) & (y0 < y1) & (x0 >= 0) & (y0 >= 0))
    if {"width", "height"} <= set(table.column_names):
        width, height = (whole(table.column(name)).to_numpy() for name in ("width", "height"))
        slack = _SLACK * np.maximum(width, height)
        bad |= (x1 > (width + slack)[column.row]) | (y1 > (height + slack)[column.row])
    yield from _values(nested, "regions", bad, "a region's box is empty or leaves the image")
    bad = ~np.isfinite(column["score"])
    yield from _values(nested, "regions", bad, "a region's score is not finite")


def _masks(table: pa.Table, nested: dict[str, NestedColumn], bad: Collection[int]) -> Faults:
    """Yield the masks with a fault of rows that have none yet: their regions are in the image."""
    if not (
        {"masks", "regions"} <= nested.keys() and {"width", "height"} <= set(table.schema.names)
    ):
        return
    masks, regions = nested["masks"], nested["regions"]
    boxes = np.stack([regions[name] for name in _BOX], axis=1)
    width, height = (table.column(name).to_pylist() for name in ("width", "height"))
    for row, region, counts in zip(masks.row, masks["region"], masks["counts"], strict=True):
        if row in bad:
            continue
        box = tuple(boxes[regions.start[row] + region].tolist())
        try:
            checked_mask(counts, box, height=height[row], width=width[row])
        except ValueError as error:
            yield int(row), f"region {region} has {error}"


_POINTERS = {
    "pairs": {"sentence": 0, "region": 0},
    "phrases": {"sentence": 0},
    "groundings": {"phrase": 0, "region": 0},
    "masks": {"region": 0},
    "by_hand": {"sentence": 0, "region": -1},
}
"""By column, its fields that are places in the column of that name's plural, each with its least
value; -1 is no region."""


def _indices(nested: dict[str, NestedColumn]) -> Faults:
    for name, fields in _POINTERS.items():
        for field, least in fields.items() if name in nested else ():
            index, column = nested[name][field], nested.get(f"{field}s")
            bad = index < least
            if column is not None:
                bad |= index >= column.counts[nested[name].row]
            noun = "by_hand" if name == "by_hand" else f"a {name[:-1]}"
            what = f"{noun} names a {field} that the sample does not have"
            yield from _values(nested, name, bad, what)


def _numbers(nested: dict[str, NestedColumn]) -> Faults:
    if "groundings" in nested:
        bad = ~np.isfinite(nested["groundings"]["score"])
        yield from _values(nested, "groundings", bad, "a grounding's score is not finite")
    if "pairs" in nested:
        bad = ~np.isfinite(nested["pairs"]["similarity"])
        yield from _values(nested, "pairs", bad, "a pair's similarity is not finite")
        yield from _infinite(nested, "pairs", ("probability", "support"))


def _infinite(nested: dict[str, NestedColumn], name: str, fields: tuple[str, ...]) -> Faults:
    """Yield infinite values of fields; a null is read as NaN."""
    for field in fields:
        yield from _values(nested, name, np.isinf(nested[name][field]), f"a {field} is infinite")


def _similarities(table: pa.Table, nested: dict[str, NestedColumn]) -> Faults:
    if not {"sentences", "regions"} <= nested.keys():
        return
    sentences, regions = nested["sentences"].counts, nested["regions"].counts
    wanted = {
        "similarity": sentences * regions,
        "image_similarity": np.where(regions > 0, sentences, 0),
        "phrase_similarity": sentences * regions,
        "agreement": sentences * regions,
    }
    for name in [name for name in wanted if name in table.column_names]:
        column = whole(table.column(name))
        there = ~_is_null(column)
        due = {"similarity": True, "image_similarity": regions > 0}.get(name, False)
        yield from _rows(~there & due, f"its {name} is null")
        number = np.diff(column.offsets.to_numpy())
        for row in np.flatnonzero(there & (number != wanted[name])):
            of = f"{sentences[row]} sentences and {regions[row]} regions"
            yield int(row), f"its {name} has {number[row]} values, not {wanted[name][row]} for {of}"
        values = column.flatten().to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(column)), np.where(there, number, 0))
        bad = np.unique(rows[~(np.abs(values) <= 1 + _SLACK)])
        yield from ((int(row), f"its {name} holds values that are no cosines") for row in bad)
