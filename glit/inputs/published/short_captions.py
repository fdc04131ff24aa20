"""COCO and Flickr30k: about five short captions an image."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from glit.data.coco import CocoFile
from glit.data.json_files import load_json
from glit.inputs.published.files import (
    AnnotatedImage,
    a_text,
    annotated,
    chosen_parts,
    good_entries,
    licence_names,
    no_parts,
    stated_licence,
)


def coco(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``captions_val2014.json`` as COCO ships it, or Karpathy's ``dataset_coco.json``."""
    values = load_json(annotations)
    folder = images or annotations.parent
    if "annotations" not in values:
        yield from _karpathy(
            values, folder, chosen_parts(split, ("train", "restval", "val", "test"))
        )
        return
    no_parts(split)
    file, licences = CocoFile(values), licence_names(values)
    entries = values["annotations"]
    known = [entry for entry in entries if isinstance(entry, dict)]
    if known and not any("caption" in entry for entry in known) and "bbox" in known[0]:
        raise ValueError("it has no captions, but boxes; take --format coco-instances")
    faults: list[AnnotatedImage] = []
    for image in file.checked().images:
        said = good_entries(image.annotations, lambda each: a_text(each[1]["caption"]), faults)
        one = annotated(folder / image.file_name, said)
        yield replace(one, licence=stated_licence(image.entry, licences))
    yield from faults
    if lost := file.without_image:
        warnings.warn(
            f"{annotations}: {sum(map(len, lost.values()))} captions are left out, of {len(lost)} "
            f"images that it does not list (such as id {next(iter(lost))!r:.40})",
            stacklevel=2,
        )


def flickr30k(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """Karpathy's ``dataset_flickr30k.json``, or ``results_20130124.token`` (no splits)."""
    folder = images or annotations.parent
    if annotations.suffix == ".json":
        parts = chosen_parts(split, ("train", "val", "test"))
        yield from _karpathy(load_json(annotations), folder, parts)
        return
    no_parts(split)
    captions: dict[str, list[str]] = {}
    with annotations.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                if "\t" not in line:
                    raise ValueError(f"the line {line[:60]!r} has no tab after its image")
                place, caption = line.split("\t", 1)
                captions.setdefault(place.rsplit("#", 1)[0], []).append(caption)
    for name, texts in captions.items():
        yield annotated(folder / name, texts)


def _karpathy(values: dict[str, Any], folder: Path, parts: set[str]) -> Iterator[AnnotatedImage]:
    """Images of Karpathy's parts; COCO's sit in ``filepath``, Flickr's directly in the folder."""

    def read(entry: dict[str, Any]) -> AnnotatedImage | None:
        if entry["split"] not in parts:
            return None
        path = folder / entry.get("filepath", "") / entry["filename"]
        return annotated(path, [a_text(sentence["raw"]) for sentence in entry["sentences"]])

    faults: list[AnnotatedImage] = []
    yield from filter(None, good_entries(values["images"], read, faults))
    yield from faults
