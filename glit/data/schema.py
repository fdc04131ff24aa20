"""Arrow schemas of the dataset and of the columns that stage tables share.

Each stage table holds ``sample_id``, the columns its stage declares and a nullable ``drop``
struct: a row is either a result or a drop, so one atomic file carries both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from glit.errors import DatasetError

SCHEMA_VERSION = 2
"""Version of the data format."""
META_SCHEMA_VERSION = b"glit.schema_version"
META_TOKENIZER = b"glit.tokenizer"
META_HUGGINGFACE = b"huggingface"

DROP = pa.struct([("reason", pa.string()), ("message", pa.string()), ("attempt", pa.int32())])
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
CAPTION_SOURCE = pa.struct(
    [
        ("kind", pa.string()),
        ("model", pa.string()),
        ("revision", pa.string()),
        ("prompt_sha256", pa.string()),
        ("trimmed", pa.bool_()),
    ]
)
CAPTION = pa.struct([("kind", pa.string()), ("text", pa.string()), ("source", pa.string())])
CAPTIONS = ("captions", pa.list_(CAPTION))
"""The column of datasets with several captions an image, the one of the column ``caption`` among
them; ``source`` as the kind of ``caption_source``."""
SENTENCE = pa.struct(
    [
        ("text", pa.string()),
        ("char_start", pa.int32()),
        ("char_end", pa.int32()),
        ("token_start", pa.int32()),
        ("token_end", pa.int32()),
        ("in_window", pa.bool_()),
        ("truncated", pa.bool_()),
        ("mean_logprob", pa.float32()),
        ("min_logprob", pa.float32()),
    ]
)
TOKEN = pa.struct([("char_end", pa.int32()), ("logprob", pa.float32())])
REGION = pa.struct(
    [
        ("x0", pa.float32()),
        ("y0", pa.float32()),
        ("x1", pa.float32()),
        ("y1", pa.float32()),
        ("score", pa.float32()),
        ("label", pa.string()),
        ("source", pa.string()),
    ]
)
PAIR = pa.struct(
    [
        ("sentence", pa.int32()),
        ("region", pa.int32()),
        ("similarity", pa.float32()),
        ("global_wins", pa.bool_()),
        ("probability", pa.float32()),
        ("support", pa.float32()),
    ]
)
PHRASE = pa.struct(
    [
        ("sentence", pa.int32()),
        ("text", pa.string()),
        ("char_start", pa.int32()),
        ("char_end", pa.int32()),
        ("token_start", pa.int32()),
        ("token_end", pa.int32()),
    ]
)
GROUNDING = pa.struct([("phrase", pa.int32()), ("region", pa.int32()), ("score", pa.float32())])
MASK = pa.struct([("region", pa.int32()), ("counts", pa.string())])
MASKS = ("masks", pa.list_(MASK))
"""The column of the stages that keep masks."""
BY_HAND = pa.struct([("sentence", pa.int32()), ("region", pa.int32()), ("scored", pa.bool_())])
"""A pair that a person decided: region -1 for none; ``scored`` is false if its similarity is not
known, which is then 0."""
REVIEW = pa.struct(
    [
        ("right", pa.bool_()),
        ("edited", pa.list_(pa.int32())),
        ("tags", pa.list_(pa.string())),
        ("note", pa.string()),
    ]
)
CORRECTED = (("by_hand", pa.list_(BY_HAND)), ("review", REVIEW))
"""The columns that glit pairs apply adds."""
ORIGIN = (
    "origin",
    pa.struct(
        [("dataset", pa.string()), ("recipe", pa.string()), ("manifest_sha256", pa.string())]
    ),
)
"""The column that glit merge adds: of a row, the dataset it was taken from, by its folder's name,
its recipe's name and its manifest; a row of a merged dataset keeps what it has."""
ATTACHED = (
    "attached",
    pa.struct(
        [
            ("file", pa.string()),
            ("sha256", pa.string()),
            ("how", pa.string()),
            ("colours", pa.string()),
            ("mirrored", pa.bool_()),
            ("turned", pa.int32()),
            ("left", pa.float64()),
            ("top", pa.float64()),
            ("right", pa.float64()),
            ("bottom", pa.float64()),
        ]
    ),
)
"""The column that glit attach adds: the user's file, its hash, how it was found (``bytes``,
``pixels`` or ``looks``), whether its colours are the ``same``, ``changed`` or ``grey``, and its
place in the published picture, in pixels of the latter, once it is turned back (``turned`` degrees
clockwise) and mirrored back."""
NEGATIVE = pa.struct([("sentence", pa.int32()), ("kind", pa.string()), ("text", pa.string())])

LISTING_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("stamp", pa.string()),
        ("beside", pa.list_(pa.string())),
    ]
)
"""Schema of the listing, a row per input file; ``stamp`` changes when the file does, ``beside``
when a side-car does."""

DATASET_SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        ("image", IMAGE),
        ("source_path", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("caption", pa.string()),
        ("caption_source", CAPTION_SOURCE),
        ("sentences", pa.list_(SENTENCE)),
        ("regions", pa.list_(REGION)),
        ("similarity", pa.list_(pa.float32())),
        ("image_similarity", pa.list_(pa.float32())),
        ("phrase_similarity", pa.list_(pa.float32())),
        ("agreement", pa.list_(pa.float32())),
        ("pairs", pa.list_(PAIR)),
    ]
)

DROPS_SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        ("source_path", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("attempt", pa.int32()),
    ]
)

DUPLICATES_SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        ("source_path", pa.string()),
        ("kept_path", pa.string()),
        ("kind", pa.string()),
    ]
)
"""``kind`` is ``exact`` (same bytes), ``near`` (perceptual hash) or ``meaning`` (embeddings)."""
PICTURES = "pictures.parquet"
"""Tells the pictures of a dataset apart that was published without them; a row a sample."""
PICTURES_SCHEMA = pa.schema(
    [("sample_id", pa.string()), ("pixels_sha256", pa.string()), ("thumbnail", pa.binary())]
)
WITH_DISTANCE = DUPLICATES_SCHEMA.append(pa.field("distance", pa.float32()))
"""Schema of duplicates in datasets that ``glit select --distinct`` wrote; ``distance`` is 1 minus
the cosine."""


ABOUT_CAPTIONS = {
    "captions": "All captions of the image, each of a kind; the caption is one of them"
}
ABOUT_MASKS = {"masks": "Run-length masks, with the numbers of their regions"}

Columns = tuple[tuple[str, pa.DataType], ...]
"""Names and types of what a stage adds to a sample."""


def stage_schema(columns: Columns) -> pa.Schema:
    """Schema of a stage's table: ``sample_id``, the stage's columns, ``drop``."""
    return pa.schema([("sample_id", pa.string()), *columns, ("drop", DROP)])


def further_columns(found: pa.Schema) -> Columns:
    """The columns of a data file that stages added to the standard ones."""
    return tuple((f.name, f.type) for f in found if f.name not in DATASET_SCHEMA.names)


def is_readable(found: pa.Schema) -> bool:
    """Return whether a data file has the standard columns; columns of further stages may follow."""
    standard = pa.schema(found.field(at) for at in range(min(len(found), len(DATASET_SCHEMA))))
    return standard.equals(DATASET_SCHEMA)


def dataset_schema(*, tokenizer: dict[str, Any], further: Columns = ()) -> pa.Schema:
    """The dataset's schema with its key-value metadata.

    Args:
        tokenizer: ``name``, ``sha256`` and ``context`` of the tokenizer that gave the spans.
        further: columns that stages add to the standard ones.
    """
    added = {name: hf_feature(kind) for name, kind in further}
    features = {"info": {"features": hf_features(added)}}
    return pa.schema(
        [*DATASET_SCHEMA, *further],
        metadata={
            META_SCHEMA_VERSION: str(SCHEMA_VERSION).encode(),
            META_TOKENIZER: json.dumps(tokenizer, sort_keys=True).encode(),
            META_HUGGINGFACE: json.dumps(features).encode(),
        },
    )


def has_captions(found: pa.Schema) -> bool:
    """Return whether images have several captions: the column of somebody's own stage is none."""
    name, kind = CAPTIONS
    return name in found.names and found.field(name).type == kind


def with_further(schema: pa.Schema, further: Columns) -> pa.Schema:
    """The schema of data files with columns after those they have, and in its metadata."""
    told = dict(schema.metadata or {})
    if META_HUGGINGFACE in told:
        features = json.loads(told[META_HUGGINGFACE])
        features["info"]["features"] |= {name: hf_feature(kind) for name, kind in further}
        told[META_HUGGINGFACE] = json.dumps(features).encode()
    return pa.schema([*schema, *(pa.field(*each) for each in further)], metadata=told)


def hf_features(further: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The ``features`` of the ``datasets`` library, so that it decodes images by itself.

    Args:
        further: those of columns that stages add.
    """
    features = {field.name: hf_feature(field.type) for field in DATASET_SCHEMA}
    features["image"] = {"_type": "Image"}
    return features | dict(further or {})


def hf_feature(kind: pa.DataType) -> Any:
    """The feature of the ``datasets`` library for an Arrow type."""
    if pa.types.is_list(kind):
        return {"feature": hf_feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: hf_feature(field.type) for field in kind}
    names = {
        pa.string(): "string",
        pa.bool_(): "bool",
        pa.float32(): "float32",
        pa.binary(): "binary",
    }
    return {"dtype": names.get(kind, str(kind)), "_type": "Value"}


def is_column_type(kind: pa.DataType) -> bool:
    """Return whether a column that a stage adds may have an Arrow type: text, bool, whole numbers,
    numbers of 32 and 64 bits, lists and structs of these."""
    if pa.types.is_list(kind):
        return is_column_type(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_column_type(field.type) for field in kind)
    return kind in (pa.string(), pa.bool_(), pa.float32(), pa.float64()) or pa.types.is_integer(
        kind
    )


def arrow_type(feature: Any) -> pa.DataType:
    """The Arrow type for a feature of the ``datasets`` library; the reverse of
    :func:`hf_feature`.

    Raises:
        DatasetError: it is none that a column of glit has.
    """
    try:
        if feature.get("_type") == "List":
            return pa.list_(arrow_type(feature["feature"]))
        if feature.get("_type") == "Value":
            return pa.type_for_alias(feature["dtype"])
        return pa.struct([(name, arrow_type(each)) for name, each in feature.items()])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"manifest.json: 'columns' is damaged ({error!r})") from error
