"""DOCCI, DCI, Urban1k, ShareGPT4V and ImageInWords: one long caption an image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from glit.evaluate.readers.files import (
    AnnotatedImage,
    annotated,
    chosen_parts,
    json_array,
    json_lines,
    load_json,
    no_parts,
    with_suffix,
)


def docci(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``docci_descriptions.jsonlines``: split, image_file, description."""
    parts = chosen_parts(split, ("train", "test", "qual_dev", "qual_test"))
    folder = images or annotations.parent / "images"
    for line in json_lines(annotations):
        if line["split"] in parts:
            yield annotated(folder / line["image_file"], [line["description"]])


def dci(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``densely_captioned_images``: annotations/*.json, photos/, splits.json.

    The long caption is ``extra_caption``; images without one are left out, as the papers do.
    """
    folder = images or annotations / "photos"
    splits = load_json(annotations / "splits.json")
    parts = chosen_parts(split, (*splits, "all"))
    names = [name for part in splits if parts & {part, "all"} for name in splits[part]]
    for name in names:
        values = load_json(annotations / "annotations" / name)
        yield annotated(folder / values["image"], [values.get("extra_caption") or ""])


def urban1k(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``Urban1k``: caption/N.txt beside image/N.jpg."""
    no_parts(split)
    folder = images or annotations / "image"
    files = sorted((annotations / "caption").glob("*.txt"), key=lambda f: (len(f.stem), f.stem))
    for file in files:
        yield annotated(with_suffix(folder / file.stem), [file.read_text(encoding="utf-8")])


def sharegpt4v(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """``share-captioner_coco_lcs_sam_1246k_1107.json``: the answer of each conversation."""
    no_parts(split)
    folder = images or annotations.parent
    for entry in json_array(annotations):
        answers = [turn["value"] for turn in entry["conversations"] if turn["from"] == "gpt"]
        yield annotated(folder / entry["image"], answers[:1])


def iiw(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """ImageInWords ``data.jsonl``: IIW (by people) or else IIW-P5B (generated)."""
    no_parts(split)
    folder = images or annotations.parent / "images"
    for line in json_lines(annotations):
        name = str(line["image/key"] if "image/key" in line else line["image"])
        caption = line["IIW"] if "IIW" in line else line["IIW-P5B"]
        yield annotated(with_suffix(folder / name), [caption])
