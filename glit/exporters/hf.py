"""``hf``: a folder for ``datasets.load_dataset`` and the Hugging Face Hub.

    README.md                       the page on the Hub: YAML, figures, how it was made, limits
    pictures/1.jpg                  for that page
    data/train-00000.parquet        ``image``, ``image_id``, ``width``, ``height``, ``caption``,
                                    ``objects`` and ``pairs``
    preview/train-00000.parquet     a hundred pictures with their boxes drawn in

``objects`` follows the convention of the ``datasets`` documentation: ``bbox`` [x, y, width, height]
in pixels and ``categories``, a ClassLabel; beside them ``score`` and ``source``. A pair is the
characters [``char_start``, ``char_end``) of the caption and the ``object`` they tell of. Where
images have several captions, ``captions`` lists all by ``kind``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glit.curate.attaching.annotations import pixels_sha256, thumbnail
from glit.data.records import GRID_SOURCES
from glit.data.schema import CAPTIONS, META_HUGGINGFACE, has_captions, hf_feature
from glit.dataset.card import figures_section
from glit.dataset.row import captions_of
from glit.dataset.statistics import narrowed_statistics
from glit.errors import InputError
from glit.exporters.hf_card import hub_card
from glit.exporters.parts import NO_CATEGORY, category_of, local_of, write_tables, xywh
from glit.exporters.preview import card_pictures, numbered, previewed, with_boxes

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report

_BOX = pa.list_(pa.float64(), 4)
_SCHEMA = pa.schema(
    [
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("image_id", pa.string()),
        ("width", pa.int64()),
        ("height", pa.int64()),
        ("caption", pa.string()),
        (
            "objects",
            pa.struct(
                [
                    ("bbox", pa.list_(_BOX)),
                    ("categories", pa.list_(pa.int64())),
                    ("score", pa.list_(pa.float64())),
                    ("source", pa.list_(pa.string())),
                ]
            ),
        ),
        (
            "pairs",
            pa.list_(
                pa.struct(
                    [
                        ("char_start", pa.int64()),
                        ("char_end", pa.int64()),
                        ("object", pa.int64()),
                        ("similarity", pa.float64()),
                        ("probability", pa.float64()),
                    ]
                )
            ),
        ),
    ]
)


_FINGERPRINT = (
    pa.field("source_path", pa.string()),
    pa.field("pixels_sha256", pa.string()),
    pa.field("thumbnail", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
)
_STRING, _IMAGE = {"dtype": "string", "_type": "Value"}, {"_type": "Image"}
_PREVIEW_FEATURES: dict[str, Any] = {
    "image": {"_type": "Image"},
    "caption": {"dtype": "string", "_type": "Value"},
    "sentences": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
    "image_id": {"dtype": "string", "_type": "Value"},
}
_PREVIEW_SCHEMA = pa.schema(
    [
        ("image", _SCHEMA.field("image").type),
        ("caption", pa.string()),
        ("sentences", pa.list_(pa.string())),
        ("image_id", pa.string()),
    ],
    metadata={META_HUGGINGFACE: json.dumps({"info": {"features": _PREVIEW_FEATURES}}).encode()},
)


def export_hf(
    dataset: Dataset, folder: Path, report: Report, *, images: bool = True, thumbnails: bool = True
) -> None:
    """Write the dataset as a folder for the Hugging Face Hub.

    Args:
        dataset: what is exported.
        folder: where to.
        report: see :func:`glit.exporters.export`.
        images: False leaves out ``image``, the preview and the card's pictures; rows then have the
            file's ``source_path`` and the hash of its pixels. ``image_id`` is that of its bytes.
        thumbnails: with that, whether rows have a thumbnail.

    Raises:
        InputError: there are pictures, and thumbnails are to be left out.
        DatasetError: a file of the dataset is damaged.
    """
    if images and not thumbnails:
        raise InputError("--no-thumbnails: --to hf has none beside pictures; add --without-images")
    names = _labels(dataset)
    features = _features(names)
    schema = _SCHEMA
    if not images:
        schema = pa.schema([*[field for field in schema if field.name != "image"], *_FINGERPRINT])
        features = {name: each for name, each in features.items() if name != "image"}
        features |= {"source_path": _STRING, "pixels_sha256": _STRING, "thumbnail": _IMAGE}
    if has_captions(dataset.schema):
        schema = schema.append(pa.field(*CAPTIONS))
        features = {**features, CAPTIONS[0]: hf_feature(CAPTIONS[1])}
    schema = schema.with_metadata(
        {META_HUGGINGFACE: json.dumps({"info": {"features": features}}).encode()}
    )
    for name in ("data", *(("preview", "pictures") if images else ())):
        (folder / name).mkdir()
    apart = None if images else _Apart(thumbnails)
    rows_of = _rows(dataset, names, report, apart)
    written = write_tables(rows_of, schema, folder / "data", "train")
    if not images:
        _write_card(dataset, folder, written, features)
        return
    chosen = (dataset[number] for number in previewed(dataset))
    rows = ({"image": {"bytes": with_boxes(row), "path": None}, "caption": row.caption.text,
             "sentences": numbered(row), "image_id": row.sample_id} for row in chosen)  # fmt: skip
    write_tables(rows, _PREVIEW_SCHEMA, folder / "preview", "train")
    pictures = card_pictures(dataset)
    for name, data in pictures.items():
        (folder / name).write_bytes(data)
    _write_card(
        dataset, folder, written, features,
        pictures=list(pictures), previewed=len(previewed(dataset)),
    )  # fmt: skip


def _write_card(
    dataset: Dataset, folder: Path, written: list[Path], features: dict[str, Any],
    *, pictures: Sequence[str] = (), previewed: int = 0,
) -> None:  # fmt: skip
    card = hub_card(
        dataset,
        files={path.name: path.stat().st_size for path in written},
        features=features,
        preview_features=_PREVIEW_FEATURES,
        pictures=pictures,
        previewed=previewed,
        figures=figures_section(narrowed_statistics(dataset)),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


class _Apart:
    """Writer of what tells pictures apart that are left out."""

    def __init__(self, thumbnails: bool) -> None:
        self._thumbnails = thumbnails

    def of(self, row: Row) -> dict[str, Any]:
        """Return the columns of a row."""
        pixels = row.pixels()
        small = {"bytes": thumbnail(pixels), "path": None} if self._thumbnails else None
        return {
            "source_path": row.source_path,
            "pixels_sha256": pixels_sha256(pixels),
            "thumbnail": small,
        }


def _labels(dataset: Dataset) -> list[str]:
    """All labels, sorted; a pass over the regions alone."""
    found: set[str] = set()
    for number in range(len(dataset.places)):
        regions = dataset.row_group(number, columns=["regions"]).regions
        of_models = [each not in GRID_SOURCES for each in regions["source"]]
        labels = zip(regions["label"], of_models, strict=True)
        found.update(label if label and is_model else NO_CATEGORY for label, is_model in labels)
    return sorted(found)


def _rows(
    rows: Iterable[Row], names: list[str], report: Report, apart: _Apart | None
) -> Iterator[dict[str, Any]]:
    from glit.images import upright_file

    number_of = {name: number for number, name in enumerate(names)}
    for row in rows:
        if apart is None:
            data, suffix = upright_file(row.encoded())
            picture = {"image": {"bytes": data, "path": f"{row.sample_id}{suffix}"}}
        else:
            picture = apart.of(row)
        yield {
            **picture,
            "image_id": row.sample_id,
            "width": row.width,
            "height": row.height,
            "caption": row.caption.text,
            CAPTIONS[0]: captions_of(row),
            "objects": {
                "bbox": [xywh(each) for each in row.regions],
                "categories": [number_of[category_of(each)] for each in row.regions],
                "score": [each.score for each in row.regions],
                "source": [each.source for each in row.regions],
            },
            "pairs": [
                {
                    "char_start": local.span[0], "char_end": local.span[1],
                    "object": local.pair.region, "similarity": local.pair.similarity,
                    "probability": local.pair.probability,
                }
                for local in local_of(row)
            ],
        }  # fmt: skip
        report(1)


def _features(names: list[str]) -> dict[str, Any]:
    """The features of the ``datasets`` library."""

    def value(kind: str) -> dict[str, Any]:
        return {"dtype": kind, "_type": "Value"}

    def many(feature: Any, **length: int) -> dict[str, Any]:
        return {"feature": feature, **length, "_type": "List"}

    return {
        "image": {"_type": "Image"},
        "image_id": value("string"),
        "width": value("int64"),
        "height": value("int64"),
        "caption": value("string"),
        "objects": {
            "bbox": many(many(value("float64"), length=4)),
            "categories": many({"names": names, "_type": "ClassLabel"}),
            "score": many(value("float64")),
            "source": many(value("string")),
        },
        "pairs": many(
            {
                "char_start": value("int64"), "char_end": value("int64"), "object": value("int64"),
                "similarity": value("float64"), "probability": value("float64"),
            }
        ),
    }  # fmt: skip
