"""Read GOAL's JSON lists: its test sets, and its joint sets of images and segments.

Both are arrays of ``{"filename": ..., "caption": ...}``. The file names are paths of the authors'
machines, so the folder given with ``--images`` is searched for the longest tail of the path that
is there: ``photos/sa_1.jpg`` before ``sa_1.jpg``. Without a folder the paths are taken as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from glit.data.json_files import json_array
from glit.images.formats import IMAGE_SUFFIXES
from glit.inputs.published.files import (
    AnnotatedImage,
    Segment,
    a_text,
    annotated,
    good_entries,
    no_parts,
    published_place,
    whole,
)
from glit.inputs.published.region_image import RegionImage
from glit.text.spans import find_phrase


def goal(annotations: Path, images: Path | None, split: str | None) -> Iterator[AnnotatedImage]:
    """``DCI_test.json``, ``docci_test.json`` and the like; entries of one file are one image."""
    no_parts(split)

    def read(entry: dict[str, Any]) -> tuple[str, str]:
        return a_text(entry["filename"]), a_text(entry["caption"])

    captions: dict[str, list[str]] = {}
    faults: list[AnnotatedImage] = []
    for name, text in good_entries(json_array(annotations), read, faults):
        if _owner({"filename": name}) is not None:
            raise ValueError(f"{name} is a segment: read joint sets as goal-joint")
        captions.setdefault(name, []).append(text)
    for name, texts in captions.items():
        yield annotated(published_place(name, images), texts, published=name)
    yield from faults


def goal_joint(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """``DCI_test_joint_sim_max_11.json``: whole images, then each one's best segment.

    A segment is ``.../sa_1.jpg_results/sa_1_max_12.png`` with its sentence; the folder names the
    whole image it was cut from. ``original_image.jpg`` in such a folder is the whole image, where a
    sentence was more like it than like any segment; where that copy is missing, the image itself
    takes its place.
    """
    no_parts(split)
    wholes: dict[str, dict[str, Any]] = {}
    segments: dict[str, list[dict[str, Any]]] = {}
    for entry in json_array(annotations):
        owner = _owner(entry)
        if not entry["caption"].strip():
            raise ValueError(f"{entry['filename']} has no text")
        if owner is not None:
            segments.setdefault(owner, []).append(entry)
        elif wholes.setdefault(_stem(PurePosixPath(entry["filename"]).name), entry) is not entry:
            raise ValueError(f"two whole images are called like {entry['filename']}")
    for owner, entries in segments.items():
        if owner not in wholes:
            raise ValueError(f"{entries[0]['filename']}: no whole image is called {owner}")
    if not segments:
        raise ValueError("no segments: read lists of whole images as goal")
    for name, entry in wholes.items():
        whole = published_place(entry["filename"], images)
        yield annotated(
            whole,
            [entry["caption"]],
            [
                Segment(path=_segment(each, images, whole), sentence=each["caption"].strip())
                for each in segments.get(name, ())
            ],
        )


@whole
def goal_train(annotations: Path, folder: Path) -> Iterator[AnnotatedImage]:
    """Read the lists of GOAL's trainer, as ``glit export --to goal`` writes them, without segments.

    Its lists of segments (``docci_segment_sim_bbox_del_org.json``) have ``original_filename`` and
    ``original_caption``; those of whole images (``DCI_train_del_org.json``) have ``filename`` and
    ``caption``, as its test sets do.
    """

    def read(entry: dict[str, Any]) -> AnnotatedImage:
        prefix = "original_" if "original_filename" in entry else ""
        name = a_text(entry[f"{prefix}filename"])
        caption = a_text(entry[f"{prefix}caption"])
        return annotated(published_place(name, folder), [caption], published=name)

    faults: list[AnnotatedImage] = []
    yield from good_entries(json_array(annotations), read, faults)
    yield from faults


@whole
def goal_segments(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """The list of GOAL's trainer with its segments (``docci_segment_sim_bbox_del_org.json``), or
    ``glit export --to goal``: each segment is a box, its caption the sentence of it.

    ``bbox_coordinates`` are ``x1``, ``y1``, ``x2``, ``y2`` in pixels of the whole picture, ends
    exclusive, as ``LISM/make_bbox.py`` writes them; their ``width`` and ``height`` are those of the
    crop there, and are not read.
    """
    for number, entry in enumerate(json_array(annotations), start=1):
        image = RegionImage(path=folder, where=f"entry {number}", shares=False)
        with image.whole():
            image.published = entry["original_filename"]
            image.path = published_place(image.published, folder)
            image.say(entry["original_caption"])
            for at, each in enumerate(entry["segment"], start=1):
                with image.record(f"segment {at}"):
                    _add_segment(image, each)
        yield image


def _add_segment(image: RegionImage, each: dict[str, Any]) -> None:
    if PurePosixPath(each["filename"]).name == "original_image.jpg":
        return  # the sentence is of the whole picture
    span = find_phrase(image.caption, each["caption"])
    if span is None:
        raise ValueError(f"the caption has no sentence {each['caption']!r:.80}")
    box = [each["bbox_coordinates"][key] for key in ("x1", "y1", "x2", "y2")]
    image.add(box, key="sentences", spans=[span])


def _owner(entry: dict[str, Any]) -> str | None:
    """The whole image a segment was cut from, without suffix; None for a whole image."""
    folder = PurePosixPath(entry["filename"]).parent.name
    return _stem(folder.removesuffix("_results")) if folder.endswith("_results") else None


def _stem(name: str) -> str:
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else name


def _segment(entry: dict[str, Any], images: Path | None, whole: Path) -> Path:
    # the folder belongs to the name: every folder has its own original_image.jpg
    path = published_place(entry["filename"], images, least=2)
    return whole if path.name == "original_image.jpg" and not path.is_file() else path
