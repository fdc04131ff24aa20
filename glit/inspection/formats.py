"""Find out the format of a published file or folder from its content."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.data.json_files import json_array
from glit.errors import InputError, closest
from glit.inputs.published import FORMATS, imported
from glit.inputs.published.files import check_regular
from glit.inputs.published.hub import has_objects
from glit.inputs.region_file import BOXES
from glit.inputs.table import TableShard
from glit.inputs.user_captions import KIND_SUFFIX, TEXT_KEYS
from glit.inputs.user_tables import PATH_KEYS

OTHERS = ("captions", "regions", "images")
"""Formats of a user's own files: captions, regions, and images in folders or shards."""
_HEAD = 1 << 16
_YOLO_NAMES = ("*.yaml", "*.yml", "classes.txt")
"""Files with the names of classes."""
_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Names of the file that an image folder of the library ``datasets`` has."""
_ANNOTATIONS = (".json", ".jsonl", ".csv", ".tsv", ".xml", ".parquet")
_MOST_FILES = 16
"""More files than this lie beside the pictures they are about."""
_UNTOLD = (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException)
"""Errors of a file that is none of the formats."""


def known_formats() -> list[str]:
    """The values of ``--format``."""
    return ["glit", *imported(), *OTHERS]


def format_of(path: Path, given: str | None) -> tuple[str, Path]:
    """The format of a file or folder, and the file to read.

    Args:
        path: the file or folder.
        given: the format that the user names; None finds it out.

    Raises:
        InputError: there is no such file or format, or the content tells none.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    check_regular(path)
    if given is not None:
        if given not in known_formats():
            raise InputError(f"--format {given}: no such format; {closest(given, known_formats())}")
        return given, path
    if path.is_dir():
        metadata = next((path / n for n in _METADATA if (path / n).is_file()), None)
        if metadata:
            return "captions", metadata
        found = _of_folder(path)
        return (found, path) if found != "images" else _annotations_in(path)
    why = ""
    try:
        if found := _of_file(path):
            return found, path
    except _UNTOLD as error:
        why = f" ({type(error).__name__}: {str(error)[:120]})"
    raise InputError(
        f"{path}: its format cannot be told{why}; name it with --format: "
        f"{', '.join(known_formats())}"
    )


def _of_folder(path: Path) -> str:
    if (path / "Annotations").is_dir() and (path / "Sentences").is_dir():
        return "flickr30k-entities"
    if (path / "splits.json").is_file() and (path / "annotations").is_dir():
        return "dci"
    if (path / "caption").is_dir() and (path / "image").is_dir():
        return "urban1k"
    if (path / "IIW-400").is_dir() or (path / "DOCCI_Test").is_dir():
        return "iiw"
    if (path / "Annotations").is_dir() and (path / "JPEGImages").is_dir():
        return "voc"
    labels = [path / "labels", *(each / "labels" for each in sorted(path.iterdir()))]
    places = (path, *(each for each in labels[:1] if each.is_dir()))
    if any(each.is_dir() for each in labels) and any(
        each.is_file() for place in places for name in _YOLO_NAMES for each in place.glob(name)
    ):
        return "yolo"
    if (path / "obj.names").is_file():
        return "yolo"
    if (path / _YOLO_NAMES[-1]).is_file() and any(
        each.name != _YOLO_NAMES[-1] for each in path.glob("*.txt")
    ):
        return "yolo"
    for pattern in ("*.parquet", "data/*.parquet", "*.json", "*.jsonl", "*.csv", "*.xml"):
        file = next(iter(sorted(path.glob(pattern))), None)
        try:
            found = _of_file(file) if file else ""
        except _UNTOLD:
            continue
        is_table = found in ("captions", "regions") and _is_table(path, file)
        if found in ("grit", "finehard", "hf", "labelme", "voc") or is_table:
            return found
    return "images"


def _annotations_in(folder: Path) -> tuple[str, Path]:
    """The one file of annotations in a folder of pictures, or else the pictures."""
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in _ANNOTATIONS)
    found = []
    for file in files if len(files) <= _MOST_FILES else ():
        try:
            name = _of_file(file)
        except _UNTOLD:
            continue
        if name not in ("", "images"):
            found.append((name, file))
    if len(found) > 1:
        held = ", ".join(f"{file.name} ({name})" for name, file in found)
        raise InputError(
            f"{folder}: holds {held}; name one of these files, or --format images for the "
            "pictures alone"
        )
    return found[0] if found else ("images", folder)


def _is_table(folder: Path, file: Path | None) -> bool:
    """Return whether a folder holds only the parts of a table, as Spark writes them."""
    names = [each for each in folder.iterdir() if not each.name.startswith((".", "_"))]
    return file is not None and all(each.suffix == file.suffix for each in names)


def _of_file(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".tar", ".zip"):
        return "images"
    if suffix == ".p":
        return "refcoco"
    if suffix == ".token":
        return "flickr30k"
    if suffix == ".parquet":
        schema = BoundedParquet(path).schema_arrow
        if has_objects(schema):
            return "hf"
        known = _of_keys(set(schema.names))
        if known in ("grit", "regions"):
            return known
        table = TableShard(str(path), path.name, size=path.stat().st_size)
        return "images" if table.has_images else known
    if suffix in (".yaml", ".yml"):
        return "yolo" if re.search(r"^names\s*:", path.read_text("utf-8-sig"), re.MULTILINE) else ""
    if suffix in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline(_HEAD)
        return _of_keys(set(re.split(r"[,;\t]", first.strip().replace('"', ""))))
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.read(_HEAD)
    if suffix in (".jsonl", ".jsonlines", ".ndjson") or re.match(r"\s*\{.*\}\s*\n\s*\{", head):
        return _of_keys(set(json.loads(_first_line(path))))
    if suffix == ".xml":
        is_cvat = "<annotations>" in head and "<image " in head
        return "cvat" if is_cvat else "voc" if re.search(r"<annotation\s*>", head) else ""
    if head.lstrip().startswith("["):
        return _of_entry(next(json_array(path), {}))
    return _of_layout(path, head)


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8-sig") as file:
        return next((line for line in islice(file, 1000) if line.strip()), "")


def _of_entry(entry: dict[str, Any]) -> str:
    """The format of an array of such entries."""
    keys = set(entry)
    if "f_path" in keys:
        return "finehard"
    if {"data", "annotations"} <= keys:
        return "label-studio"
    if "regions" in keys and keys & {"id", "image_id"}:
        return "visual-genome"
    if {"conversations", "image"} <= keys:
        return "sharegpt4v"
    if keys & {"original_filename", "filename"} and keys & {"original_caption", "caption"}:
        return "goal-train"
    return ""


def _of_layout(path: Path, head: str) -> str:
    """The format of one JSON object, as COCO has it, by its first and last characters."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _HEAD))
        text = head + file.read().decode("utf-8", "replace")
    keys = set(re.findall(r'"(\w+)"\s*:', text))
    if {"shapes", "imagePath"} <= keys:
        return "labelme"
    if not keys & {"images", "file_name"}:
        return ""
    if {"sentences", "raw"} <= keys:
        return "coco" if '"coco"' in text or "filepath" in keys else "flickr30k"
    if "tokens_positive" in keys:
        return "mdetr"
    if "bbox" in keys:
        return "coco-instances"
    return "coco" if "caption" in keys else ""


_BY_KEYS = (
    ({"noun_chunks", "caption"}, "grit"),
    ({"filename", "grounding"}, "odvg"),
    ({"filename", "detection"}, "odvg"),
    ({"file_name", "grounding"}, "odvg"),
    ({"file_name", "detection"}, "odvg"),
    ({"image_path", "expressions"}, "tao"),
    ({"image_file", "description"}, "docci"),
    ({"image_id", "dataset_id", "caption"}, "localized-narratives"),
    ({"img_path", "caption"}, "himo-docci"),
    ({"image/key"}, "iiw"),
    ({"IIW"}, "iiw"),
)


def _of_keys(keys: set[str]) -> str:
    """The format of rows with these keys."""
    for wanted, name in _BY_KEYS:
        if wanted <= keys:
            assert name in FORMATS
            return name
    if keys & {*PATH_KEYS} and keys & {*BOXES}:
        return "regions"
    texts = keys & {*TEXT_KEYS} or any(key.endswith(KIND_SUFFIX) for key in keys)
    holds_paths = keys & ({*PATH_KEYS} - {"image"}) or ("image" in keys and "bytes" not in keys)
    return "captions" if texts and holds_paths else "images" if "image" in keys else ""
