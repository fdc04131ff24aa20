"""``fiftyone``: a folder in FiftyOne's own layout, for ``fo.types.FiftyOneDataset``.

    data/NAME.jpg
    samples.json       ``caption``, ``sentences``, ``regions``, ``pairs`` and where the file was
    metadata.json      the fields and their types; ``captions`` where images have several

A box is ``bounding_box`` [x, y, width, height] in parts of the image's sides. ``regions``
are all detections; ``pairs`` are those that a sentence tells of, labelled with the sentence, best
first, with its span in the caption. Identifiers come from the samples, and dates are 1970's: two
exports of a dataset are equal.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.data.schema import has_captions
from glit.exporters.json_file import JsonFile
from glit.exporters.parts import PictureFolder, category_of, local_of, several_of, xywh
from glit.plain import as_plain

if TYPE_CHECKING:
    from glit.data.records import Region
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report

_LAYOUT = "1.0.0"
"""FiftyOne's version whose layout this is; newer ones migrate it when they read."""
_DATE = {"$date": "1970-01-01T00:00:00Z"}
_FIELDS, _LABELS = "fiftyone.core.fields.", "fiftyone.core.labels."
_DETECTION = {
    "id": "ObjectId", "tags": "List:String", "attributes": "Dict", "label": "String",
    "bounding_box": "List:Float", "mask": "Array", "mask_path": "String", "confidence": "Float",
    "index": "Int",
}  # fmt: skip
_OF_REGIONS = {"source": "String"}
_OF_PAIRS = {
    "region": "Int", "sentence": "Int", "char_start": "Int", "char_end": "Int",
    "similarity": "Float", "probability": "Float", "source": "String",
}  # fmt: skip


def export_fiftyone(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as a FiftyOne dataset folder."""
    (folder / "data").mkdir()
    pictures = PictureFolder(dataset, folder / "data")
    with JsonFile(folder / "samples.json", "samples") as file:
        for row in dataset:
            name = pictures.write(row)
            file.add("samples", _sample(row, name, (folder / "data" / name).stat().st_size))
            report(1)
    described = _description(dataset)
    (folder / "metadata.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _sample(row: Row, name: str, num_bytes: int) -> dict[str, Any]:
    return {
        "_id": _id(row.sample_id),
        "filepath": f"data/{name}",
        "tags": [],
        "metadata": {
            "_cls": "ImageMetadata",
            "size_bytes": num_bytes,
            "mime_type": mimetypes.guess_type(name)[0],
            "width": row.width,
            "height": row.height,
            "num_channels": 3,
        },
        "_media_type": "image",
        "_rand": int(row.sample_id[:12], 16) / 16**12,
        "created_at": _DATE,
        "last_modified_at": _DATE,
        "sample_id": row.sample_id,
        "source_path": row.source_path,
        "caption": row.caption.text,
        "sentences": [sentence.text for sentence in row.sentences],
        **several_of(row),
        "regions": {"_cls": "Detections", "detections": list(_regions(row))},
        "pairs": {"_cls": "Detections", "detections": list(_pairs(row))},
    }


def _regions(row: Row) -> Iterator[dict[str, Any]]:
    for number, region in enumerate(row.regions):
        key, label = f"{row.sample_id} region {number}", category_of(region)
        yield _detection(row, region, key, label) | {
            "confidence": region.score,
            "source": region.source,
        }


def _pairs(row: Row) -> Iterator[dict[str, Any]]:
    for local in local_of(row):
        key = f"{row.sample_id} pair {local.pair.sentence} {local.pair.region}"
        yield _detection(row, local.region, key, local.sentence.text) | {
            "confidence": local.region.score,
            "region": local.pair.region,
            "sentence": local.pair.sentence,
            "char_start": local.sentence.char_start,
            "char_end": local.sentence.char_end,
            "similarity": local.pair.similarity,
            "probability": local.pair.probability,
            "source": local.region.source,
        }


def _detection(row: Row, region: Region, key: str, label: str) -> dict[str, Any]:
    x, y, width, height = xywh(region)
    return {
        "_id": _id(key),
        "_cls": "Detection",
        "attributes": {},
        "tags": [],
        "label": label,
        "bounding_box": [x / row.width, y / row.height, width / row.width, height / row.height],
    }


def _id(key: str) -> dict[str, str]:
    """A FiftyOne id: twelve bytes."""
    return {"$oid": hashlib.sha256(key.encode()).hexdigest()[:24]}


def _description(dataset: Dataset) -> dict[str, Any]:
    manifest = dataset.manifest
    number = _id(json.dumps(dict(manifest.fingerprints), sort_keys=True))
    several = has_captions(dataset.schema)
    image = {"size_bytes": "Int", "mime_type": "String", "width": "Int", "height": "Int",
             "num_channels": "Int"}  # fmt: skip
    plain = {
        "id": "ObjectId", "filepath": "String", "tags": "List:String", "_media_type": "String",
        "_rand": "Float", "created_at": "DateTime", "last_modified_at": "DateTime",
        "sample_id": "String", "source_path": "String", "caption": "String",
        "sentences": "List:String", **({"captions": "List:Dict"} if several else {}),
    }  # fmt: skip
    return {
        "_id": number,
        "name": f"glit-{manifest.recipe.name}",
        "version": _LAYOUT,
        "created_at": _DATE,
        "last_modified_at": _DATE,
        "media_type": "image",
        "info": {"recipe": as_plain(manifest.recipe), "models": as_plain(manifest.models)},
        "sample_fields": [
            *(_field(name, kind) for name, kind in plain.items()),
            _embedded("metadata", "fiftyone.core.metadata.ImageMetadata", image),
            _detections("regions", _OF_REGIONS),
            _detections("pairs", _OF_PAIRS),
        ],
        "frame_fields": [],
    }


def _field(name: str, kind: str) -> dict[str, Any]:
    outer, _, inner = kind.partition(":")
    return {
        "name": name,
        "ftype": f"{_FIELDS}{outer}Field",
        "embedded_doc_type": None,
        "subfield": f"{_FIELDS}{inner}Field" if inner else None,
        "fields": [],
        "db_field": "_id" if name == "id" else name,
        "description": None,
        "info": None,
        "read_only": name in ("created_at", "last_modified_at"),
        "created_at": _DATE,
    }


def _embedded(name: str, kind: str, fields: dict[str, str]) -> dict[str, Any]:
    inside = [_field(each, what) for each, what in fields.items()]
    return {**_field(name, "EmbeddedDocument"), "embedded_doc_type": kind, "fields": inside}


def _detections(name: str, own: dict[str, str]) -> dict[str, Any]:
    inner = _embedded("detections", f"{_LABELS}Detection", _DETECTION | own)
    inner |= {"ftype": f"{_FIELDS}ListField", "subfield": f"{_FIELDS}EmbeddedDocumentField"}
    return {**_embedded(name, f"{_LABELS}Detections", {}), "fields": [inner]}
