"""Annotation files of public long- and short-caption datasets, as image files with captions.

Each reader takes the annotation file (or folder) as its publisher ships it, the folder with the
images, and a split where the format knows splits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.errors import InputError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedImage:
    """An image file and its captions."""

    path: Path
    """The image file."""

    captions: tuple[str, ...]
    """One or more, not empty."""


Reader = Callable[[Path, Path | None, str], list[AnnotatedImage]]


def read_annotations(
    name: str, annotations: Path, *, images: Path | None, split: str
) -> list[AnnotatedImage]:
    """Read a dataset's annotations; images without any caption are left out.

    Args:
        name: one of READERS.
        annotations: file or folder as published.
        images: folder with the images; where the format has its own folder, that is the default.
        split: which part; ignored by formats without parts.

    Raises InputError when the files are not of that format, nothing is left, or an image is
    missing (a smaller gallery would give better figures).
    """
    if name not in READERS:
        raise InputError(f"--format {name!r}: known formats are glit, {', '.join(READERS)}")
    if not annotations.exists():
        raise InputError(f"{annotations}: no such file or folder; give the {name} annotations")
    try:
        found = READERS[name](annotations, images, split)
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise InputError(
            f"{annotations}: not the {name} annotations as published "
            f"({type(error).__name__}: {error}); see docs/evaluation.md for the layout"
        ) from error
    kept = [image for image in found if image.captions]
    if not kept:
        raise InputError(
            f"{annotations}: no captioned image in split {split!r}; check --split and --format"
        )
    missing = [image.path for image in kept if not image.path.is_file()]
    if missing:
        raise InputError(
            f"{annotations}: {len(missing)} of {len(kept)} images are missing (first: "
            f"{missing[0]}); give their folder with --images"
        )
    return kept


def _docci(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """``docci_descriptions.jsonlines``: split, image_file, description."""
    folder = images or annotations.parent / "images"
    return [
        _image(folder / line["image_file"], [line["description"]])
        for line in _json_lines(annotations)
        if line["split"] == split
    ]


def _dci(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """``densely_captioned_images``: annotations/*.json, photos/, splits.json (all without it).

    The long caption is ``extra_caption``; images without one are left out, as the papers do.
    """
    folder = images or annotations / "photos"
    splits = annotations / "splits.json"
    files = sorted((annotations / "annotations").glob("*.json"))
    if splits.is_file() and split != "all":
        names = {Path(name).name for name in _json(splits)[split]}
        files = [file for file in files if file.name in names]
    found = []
    for file in files:
        values = _json(file)
        found.append(_image(folder / values["image"], [values.get("extra_caption") or ""]))
    return found


def _urban1k(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """``Urban1k``: caption/N.txt beside image/N.jpg."""
    folder = images or annotations / "image"
    files = sorted((annotations / "caption").glob("*.txt"), key=lambda f: (len(f.stem), f.stem))
    return [
        _image(_with_suffix(folder / file.stem), [file.read_text(encoding="utf-8")])
        for file in files
    ]


def _coco(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """``captions_val2014.json`` as COCO ships it, or Karpathy's ``dataset_coco.json``."""
    values = _json(annotations)
    folder = images or annotations.parent
    if "annotations" not in values:
        return list(_karpathy(values, folder, split))
    captions: dict[int, list[str]] = {}
    for entry in values["annotations"]:
        captions.setdefault(entry["image_id"], []).append(entry["caption"])
    return [
        _image(folder / entry["file_name"], captions.get(entry["id"], []))
        for entry in values["images"]
    ]


def _flickr30k(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """Karpathy's ``dataset_flickr30k.json``, or ``results_20130124.token`` (no splits)."""
    folder = images or annotations.parent
    if annotations.suffix == ".json":
        return list(_karpathy(_json(annotations), folder, split))
    captions: dict[str, list[str]] = {}
    for line in annotations.read_text(encoding="utf-8").splitlines():
        if line.strip():
            place, caption = line.split("\t", 1)
            captions.setdefault(place.rsplit("#", 1)[0], []).append(caption)
    return [_image(folder / name, texts) for name, texts in captions.items()]


def _sharegpt4v(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """``share-captioner_coco_lcs_sam_1246k_1107.json``: the answer of each conversation."""
    folder = images or annotations.parent
    return [
        _image(
            folder / entry["image"],
            [turn["value"] for turn in entry["conversations"] if turn["from"] == "gpt"][:1],
        )
        for entry in _json(annotations)
    ]


def _iiw(annotations: Path, images: Path | None, split: str) -> list[AnnotatedImage]:
    """ImageInWords ``data.jsonl``: IIW (by people) or else IIW-P5B (generated)."""
    folder = images or annotations.parent / "images"
    found = []
    for line in _json_lines(annotations):
        name = str(line["image/key"] if "image/key" in line else line["image"])
        caption = line["IIW"] if "IIW" in line else line["IIW-P5B"]
        found.append(_image(_with_suffix(folder / name), [caption]))
    return found


READERS: dict[str, Reader] = {
    "docci": _docci,
    "dci": _dci,
    "urban1k": _urban1k,
    "coco": _coco,
    "flickr30k": _flickr30k,
    "sharegpt4v": _sharegpt4v,
    "iiw": _iiw,
}
"""Formats by the name ``--format`` takes."""


def _karpathy(values: dict[str, Any], folder: Path, split: str) -> Iterator[AnnotatedImage]:
    """Images of a Karpathy split; COCO's sit in ``filepath``, Flickr's directly in the folder."""
    for entry in values["images"]:
        if entry["split"] == split:
            path = folder / entry.get("filepath", "") / entry["filename"]
            yield _image(path, [sentence["raw"] for sentence in entry["sentences"]])


def _image(path: Path, captions: Iterable[str]) -> AnnotatedImage:
    stripped = (caption.strip() for caption in captions)
    return AnnotatedImage(path=path, captions=tuple(caption for caption in stripped if caption))


def _with_suffix(path: Path) -> Path:
    """The image file of a name that may lack its suffix."""
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return path
    candidates = [path.with_name(path.name + suffix) for suffix in IMAGE_SUFFIXES]
    return next((c for c in candidates if c.is_file()), candidates[0])


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)
