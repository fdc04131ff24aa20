"""Boxes of many pictures in one file: COCO and LVIS, CVAT, Label Studio."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from glit.data.frames import checked_size, stated_size, xywh_corners
from glit.data.json_files import json_array, load_json
from glit.data.rle import Runs, decode_rle, encode_rle, read_rle
from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES, suffix_of
from glit.published.files import licence_names, stated_origin, whole
from glit.published.goal import published_place
from glit.published.region_image import RegionImage, as_number, named, outline
from glit.published.xml_files import xml_entries

_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")
"""What Label Studio puts before the name of an uploaded picture."""
_NO_REGIONS = {"choices", "datetime", "number", "pairwise", "rating", "relation", "taxonomy",
               "textarea"}  # fmt: skip
"""Types of Label Studio's results that are no regions."""
_MOST_MASK = 1 << 27
"""Pixels of a picture whose CVAT masks are read."""
_PICTURES = IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES


def coco_file_name(image: dict[str, Any]) -> str:
    """COCO's ``file_name``; for LVIS, folder and file at the end of ``coco_url``."""
    if "file_name" in image:
        return image["file_name"]
    return "/".join(urlsplit(image["coco_url"]).path.split("/")[-2:])


@whole
def coco_instances(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """``instances_val2017.json`` of COCO (cocodataset.org, format of data) or ``lvis_v1_val.json``:
    boxes with their category, and polygons or run lengths as masks. Crowds are left out."""
    values = load_json(annotations)
    labels = _category_names(values["categories"])
    times = Counter(_id(entry, "id") for entry in values["images"])
    boxes: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
    for number, each in enumerate(values["annotations"], start=1):
        boxes.setdefault(_id(each, "image_id"), []).append((number, each))
    licences = licence_names(values)
    for number, entry in enumerate(values["images"], start=1):
        image = RegionImage(path=folder, where=f"images, entry {number}", shares=False)
        with image.whole():
            image.path = published_place(coco_file_name(entry), folder)
            image.stated = stated_size(entry)
            image.licence, image.address = stated_origin(entry, licences)
            key = _id(entry, "id")
            found = boxes.pop(key, ())
            if key is None or times[key] > 1:
                raise ValueError(
                    "no id" if key is None else f"{times[key]} images have the id {key}"
                )
            for at, each in found:
                with image.record(f"annotation {at}"):
                    _add_instance(image, each, labels)
        yield image
    for key, found in boxes.items():
        fault = f"no image has the id {key!r:.40} ({len(found)} boxes)"
        yield RegionImage(path=folder, where=f"annotation {found[0][0]}", fault=fault)


def _category_names(categories: list[dict[str, Any]]) -> dict[Any, str]:
    """Names of the categories by their id.

    Raises:
        ValueError: a category has no name, or two have one id.
    """
    found: dict[Any, str] = {}
    for each in categories:
        key, name = each["id"], named(each["name"])
        if found.setdefault(key, name) != name:
            raise ValueError(f"two categories have the id {key}: {found[key]} and {name}")
    return found


def _id(entry: Any, key: str) -> int | float | str | None:
    """The id under a key, of pandas ``1.0`` for 1; None if there is none."""
    found = entry.get(key) if isinstance(entry, dict) else None
    return found if isinstance(found, int | float | str) else None


def _add_instance(image: RegionImage, each: dict[str, Any], labels: dict[Any, str]) -> None:
    if each.get("iscrowd"):
        raise ValueError("a crowd, whose box is of no single thing")
    box = xywh_corners([as_number(edge) for edge in each["bbox"]])
    if each["category_id"] not in labels:
        raise ValueError(f"no category has the id {each['category_id']!r:.40}")
    image.add(
        box,
        label=labels[each["category_id"]],
        score=each.get("score"),
        segmentation=each.get("segmentation") if image.stated else None,
    )


@whole
def cvat(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """CVAT for images 1.1 (docs.cvat.ai, CVAT format): ``annotations.xml``, pixels from the edge.

    Polygons and masks get a mask. Turned boxes are left out, and what has no box: lines, points.
    """
    number = 0
    for number, entry in enumerate(xml_entries(annotations, "image"), start=1):
        image = RegionImage(path=folder, where=f"image {number}", shares=False)
        with image.whole():
            image.path = published_place(f"images/{entry.attrib['name']}", folder)
            image.stated = (int(entry.attrib["width"]), int(entry.attrib["height"]))
            for at, shape in enumerate(entry, start=1):
                if shape.tag != "tag":
                    with image.record(f"shape {at}"):
                        _add_cvat(image, shape)
        yield image
    if not number:
        raise ValueError("no <image>; export the task as CVAT for images 1.1, not for video")


def _add_cvat(image: RegionImage, shape: ET.Element) -> None:
    of = shape.attrib
    if as_number(of.get("rotation", 0)):
        raise ValueError(f"a {shape.tag} turned by {of['rotation']} degrees, which is no box")
    segmentation: Any = None
    if shape.tag == "box":
        box = tuple(as_number(of[key]) for key in ("xtl", "ytl", "xbr", "ybr"))
    elif shape.tag == "ellipse":
        x, y, across, down = (as_number(of[key]) for key in ("cx", "cy", "rx", "ry"))
        box = (x - across, y - down, x + across, y + down)
    elif shape.tag == "polygon":
        edges = [as_number(e) for point in of["points"].split(";") for e in point.split(",")]
        box, segmentation = outline(list(zip(edges[::2], edges[1::2], strict=True)))
    elif shape.tag == "mask":
        place = [int(of[key]) for key in ("left", "top", "width", "height")]
        box, segmentation = _cvat_mask(image, of["rle"], *place)
    else:
        raise ValueError(f"a {shape.tag[:30]}, which has no box")
    image.add(box, label=of["label"], segmentation=segmentation)


def _cvat_mask(
    image: RegionImage, rle: str, x: int, y: int, across: int, down: int
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The box around the pixels of CVAT's run lengths, and these as COCO's of the picture.

    They go along the rows of a frame, which is the mask's own box, or that of the whole picture.
    """
    width, height = map(int, checked_size(image.stated or ()))
    if not (x >= 0 and y >= 0 and 0 < across <= width - x and 0 < down <= height - y):
        raise ValueError(f"a mask of {across}x{down} pixels at {x}, {y}, outside its picture")
    if width * height > _MOST_MASK:
        raise ValueError(f"a mask of {width}x{height} pixels, want at most {_MOST_MASK}")
    runs: Runs = read_rle([int(run) for run in rle.split(",")], height=across, width=down)
    whole = np.zeros((height, width), dtype=bool)
    whole[y : y + down, x : x + across] = decode_rle(runs, height=across, width=down).T
    rows, columns = np.flatnonzero(whole.any(1)), np.flatnonzero(whole.any(0))
    if not len(rows):
        raise ValueError("a mask without a pixel")
    box = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    return tuple(map(int, box)), {"size": [height, width], "counts": encode_rle(whole)}


@whole
def label_studio(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """Label Studio's export JSON (labelstud.io/guide/export): rectangles and polygons in percent of
    the picture, of the one annotation that a task has, or of the one that is its ground truth."""
    for number, task in enumerate(json_array(annotations), start=1):
        image = RegionImage(path=folder, where=f"task {number}", shares=False)
        with image.whole():
            image.path = _task_picture(task, folder)
            for at, each in enumerate(_annotation(task)["result"], start=1):
                if each["type"] in _NO_REGIONS:
                    continue
                size = stated_size(each, "original_width", "original_height")
                if image.stated not in (None, size):
                    raise ValueError("results of pictures of different sizes")
                image.stated = size
                with image.record(f"result {at}"):
                    _add_result(image, each)
        yield image


def _annotation(task: dict[str, Any]) -> dict[str, Any]:
    found = [each for each in task["annotations"] if not each.get("was_cancelled")]
    found = [each for each in found if each.get("ground_truth")] or found
    if len(found) > 1:
        raise ValueError(f"{len(found)} annotations; mark one of them as ground truth")
    return found[0] if found else {"result": []}


def _task_picture(task: dict[str, Any], folder: Path) -> Path:
    names = [each for each in task["data"].values() if isinstance(each, str)]
    places = [name for name in map(_place_of, names) if suffix_of(name) in _PICTURES]
    if len(places) != 1:
        raise ValueError(f"data names {len(places)} pictures, want one")
    found = published_place(places[0], folder)
    plain = found.with_name(_UPLOADED.sub("", found.name))
    return plain if plain.is_file() and not found.is_file() else found


def _place_of(address: str) -> str:
    """The path in a picture's address; ``/data/local-files/?d=PATH`` is that of a local file."""
    if "://" not in address and not address.startswith("/data/"):
        return address
    parts = urlsplit(address)
    local = parse_qs(parts.query).get("d") if parts.path.endswith("/local-files/") else None
    return local[0] if local else unquote(parts.path)


def _add_result(image: RegionImage, result: dict[str, Any]) -> None:
    kind, value = result["type"], result["value"]
    if as_number(value.get("rotation", 0)) or as_number(result.get("image_rotation") or 0):
        raise ValueError("a turned box or picture, whose box is none of the picture's")
    width, height = checked_size(image.stated or ())
    segmentation = None
    if "points" in value:
        box, segmentation = outline(
            [(as_number(x) * width / 100, as_number(y) * height / 100) for x, y in value["points"]]
        )
    else:
        x, y, w, h = (as_number(value[key]) for key in ("x", "y", "width", "height"))
        box = (x * width / 100, y * height / 100, (x + w) * width / 100, (y + h) * height / 100)
    for label in value.get(kind) or [""]:
        image.add(box, label=label, segmentation=segmentation, score=result.get("score"))
