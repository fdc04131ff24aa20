"""DOCCI, DCI, Urban1k, ShareGPT4V, ImageInWords, Localized Narratives: long captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glit.data.captions import SHORT
from glit.data.json_files import json_array, json_lines, load_json
from glit.inputs.published.files import (
    AnnotatedImage,
    a_text,
    annotated,
    chosen_parts,
    good_entries,
    no_parts,
    whole,
    with_suffix,
)


def docci(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``docci_descriptions.jsonlines``: split, image_file, description."""
    parts = chosen_parts(split, ("train", "test", "qual_dev", "qual_test"))
    folder = images or annotations.parent / "images"

    def read(line: dict[str, Any]) -> AnnotatedImage | None:
        if line["split"] not in parts:
            return None
        return annotated(folder / line["image_file"], [a_text(line["description"])])

    faults: list[AnnotatedImage] = []
    yield from filter(None, good_entries(json_lines(annotations), read, faults))
    yield from faults


def dci(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``densely_captioned_images``: annotations/*.json, photos/, splits.json.

    The long caption is ``extra_caption``; images without one are left out, as FAST-GOAL does. The
    ``short_caption`` is not measured; an import keeps it.
    """

    def read(folder: Path, values: dict[str, Any]) -> AnnotatedImage:
        short = a_text(values.get("short_caption") or "").strip()
        found = annotated(folder / values["image"], [a_text(values.get("extra_caption") or "")])
        return replace(found, further=((SHORT, short),) if short else ())

    return _dci_images(annotations, images, split, read)


def dci_full(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """The same files; the caption is ``short_caption``, a line break and ``extra_caption``.

    So LoTLIP, FLAIR and F-CAST read DCI; every image has a short caption, so none is left out.
    """

    def read(folder: Path, values: dict[str, Any]) -> AnnotatedImage:
        text = f"{a_text(values['short_caption'])}\n{values.get('extra_caption') or ''}"
        return annotated(folder / values["image"], [text])

    return _dci_images(annotations, images, split, read)


def _dci_images(
    annotations: Path,
    images: Path | None,
    split: str | None,
    read: Callable[[Path, dict[str, Any]], AnnotatedImage],
) -> Iterator[AnnotatedImage]:
    folder = images or annotations / "photos"
    splits = load_json(annotations / "splits.json")
    parts = chosen_parts(split, (*splits, "all"))
    names = [name for part in splits if parts & {part, "all"} for name in splits[part]]
    faults: list[AnnotatedImage] = []
    yield from good_entries(
        names, lambda name: read(folder, load_json(annotations / "annotations" / name)), faults
    )
    yield from faults


def urban1k(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``Urban1k``: caption/N.txt beside image/N.jpg."""
    no_parts(split)
    folder = images or annotations / "image"
    files = sorted((annotations / "caption").glob("*.txt"), key=lambda f: (len(f.stem), f.stem))
    for file in files:
        yield annotated(with_suffix(folder / file.stem), [file.read_text(encoding="utf-8")])


@whole
def sharegpt4v(annotations: Path, folder: Path) -> Iterator[AnnotatedImage]:
    """``share-captioner_coco_lcs_sam_1246k_1107.json``: the answer of each conversation."""

    def read(entry: dict[str, Any]) -> AnnotatedImage:
        answers = [a_text(t["value"]) for t in entry["conversations"] if t["from"] == "gpt"]
        return annotated(folder / entry["image"], answers[:1])

    faults: list[AnnotatedImage] = []
    yield from good_entries(json_array(annotations), read, faults)
    yield from faults


def himo_docci(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """``himo_docci_data.json``, JSON lines: a caption's first one, two, ... sentences."""
    no_parts(split)
    folder = images or annotations.parent / "images"

    def read(line: dict[str, Any]) -> AnnotatedImage:
        texts = [a_text(each) for each in line["caption"]]
        return replace(annotated(folder / line["img_path"], texts), growing=True)

    faults: list[AnnotatedImage] = []
    yield from good_entries(json_lines(annotations), read, faults)
    yield from faults


def iiw(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """ImageInWords: one ``data.jsonl``, or the folder that holds IIW_PARTS, all three by default.

    Of the folder's parts the images are in ``docci``, ``docci_aar`` and ``dci`` below ``images``
    (LoTLIP's layout), or all directly in it.
    """
    if annotations.is_file():
        no_parts(split)
        yield from _iiw_lines(annotations, [images or annotations.parent / "images"])
        return
    parts = chosen_parts(split, IIW_PARTS, default="+".join(IIW_PARTS))
    folder = images or annotations / "images"
    for part, own in IIW_PARTS.items():
        if part in parts:
            yield from _iiw_lines(annotations / part / "data.jsonl", [folder / own, folder])


IIW_PARTS = {"DOCCI_Test": "docci", "IIW-400": "docci_aar", "DCI_Test": "dci"}
"""The parts written by people (100, 400 and 112 images), each with the folder of its images."""


def _iiw_lines(annotations: Path, folders: Sequence[Path]) -> Iterator[AnnotatedImage]:
    """The caption is IIW (by people) or else IIW-P5B (generated)."""

    def read(line: dict[str, Any]) -> AnnotatedImage:
        name = str(line["image/key"] if "image/key" in line else line["image"])
        paths = [with_suffix(folder / name) for folder in folders]
        path = next((path for path in paths if path.is_file()), paths[0])
        return annotated(path, [a_text(line["IIW"] if "IIW" in line else line["IIW-P5B"])])

    faults: list[AnnotatedImage] = []
    yield from good_entries(json_lines(annotations), read, faults)
    yield from faults


@whole
def localized_narratives(annotations: Path, folder: Path) -> Iterator[AnnotatedImage]:
    """``open_images_test_captions.jsonl`` and the like: the written form of what was said.

    COCO's pictures are called by twelve digits, the others by their id.
    """

    def read(line: dict[str, Any]) -> tuple[Path, str]:
        name = line["image_id"]
        if line["dataset_id"].startswith("mscoco"):
            name = f"{int(name):012d}"
        return folder / f"{name}.jpg", a_text(line["caption"])

    captions: dict[Path, list[str]] = {}
    faults: list[AnnotatedImage] = []
    for path, text in good_entries(json_lines(annotations), read, faults):
        captions.setdefault(path, []).append(text)
    for path, texts in captions.items():
        yield annotated(path, texts)
    yield from faults
