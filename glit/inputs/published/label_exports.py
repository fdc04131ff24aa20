"""Boxes of many pictures in one file: COCO and LVIS, CVAT, Label Studio."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from glit.data.coco import CocoFile, CocoImage
from glit.data.frames import checked_size, stated_size, xywh_corners
from glit.data.json_files import json_array, load_json
from glit.data.rle import Runs, decode_rle, encode_rle, read_rle
from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES, suffix_of
from glit.inputs.published.files import licence_names, published_place, stated_licence, whole
from glit.inputs.published.region_image import RegionImage, as_number, outline, turned_box
from glit.inputs.published.xml_files import xml_entries

_NO_REGIONS = {"choices", "datetime", "number", "pairwise", "rating", "relation", "taxonomy",
               "textarea"}  # fmt: skip
"""Types of Label Studio's results that are no regions."""
_MOST_MASK = 1 << 27
"""Pixels of a picture whose CVAT masks are read."""
_PICTURES = IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES
SpansOf = Callable[[dict[str, Any], dict[str, Any]], Sequence[Sequence[Any]]]
"""Gives the phrases of an annotation of an image, by the entries of both."""


@whole
def coco_instances(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """``instances_val2017.json`` of COCO (cocodataset.org, format of data) or ``lvis_v1_val.json``:
    boxes with their category, and polygons or run lengths as masks. Crowds are left out.

    Of a box that CVAT turned (``attributes.rotation``), the box around it is taken, and its corners
    as the mask.
    """
    for image, name in coco_images(load_json(annotations)):
        image.path = folder
        if name or not image.fault:
            with image.whole():
                image.published = name
                image.path = published_place(image.published, folder)
        yield image


def coco_images(
    values: dict[str, Any], spans_of: SpansOf = lambda entry, annotation: ()
) -> Iterator[tuple[RegionImage, str]]:
    """Yield the images of a file in COCO's layout, with their names in the file; an empty one for
    a fault that is of no image.

    Args:
        values: of the file.
        spans_of: the phrases of an annotation.
    """
    file = CocoFile(values)
    if file.is_captions:
        raise ValueError("it has no boxes, but captions; take --format coco, or --captions")
    licences = licence_names(values)
    for of in file.images:
        image, name = coco_image(of, licences), ""
        with image.whole():
            name = of.file_name
            if not image.fault:
                add_instances(image, file, of, partial(spans_of, of.entry))
        yield image, name
    for image in without_image(file):
        yield image, ""


def coco_image(of: CocoImage, licences: dict[Any, str]) -> RegionImage:
    """The image of an entry, without its place and its boxes."""
    image = RegionImage(path=Path(), where=f"images, entry {of.number}", shares=False)
    with image.whole():
        image.stated = stated_size(of.entry)
        checked_size(image.stated or (1, 1))
        image.licence = stated_licence(of.entry, licences)
        if of.fault:
            raise ValueError(of.fault)
    return image


def without_image(file: CocoFile) -> Iterator[RegionImage]:
    """Yield a fault for every image that the file has annotations of, and does not list."""
    for key, lost in file.without_image.items():
        where = f"annotation {lost[0][0]}"
        yield RegionImage(path=Path(), where=where, fault=file.no_image(key))


def add_instances(
    image: RegionImage,
    file: CocoFile,
    of: CocoImage,
    spans_of: Callable[[dict[str, Any]], Sequence[Sequence[Any]]],
    *,
    labelled: bool = True,
) -> None:
    """Add the annotations of an image as regions; those that cannot be right are left out."""
    for number, each in of.annotations:
        with image.record(f"annotation {number}"):
            if file.is_crowd(each):
                raise ValueError("a crowd, whose box is of no single thing")
            box, corners = instance_box(each)
            image.add(
                box,
                key="phrases",
                label=file.category(each) if labelled else "",
                score=each.get("score"),
                spans=spans_of(each),
                segmentation=(each.get("segmentation") or corners) if image.stated else None,
            )


def instance_box(
    each: dict[str, Any],
) -> tuple[Sequence[float], list[list[float]] | None]:
    """The box of COCO's annotation; of a turned one the box around it, and its corners."""
    attributes = each.get("attributes")
    rotation = attributes.get("rotation") if isinstance(attributes, dict) else None
    return turned_box(xywh_corners([as_number(edge) for edge in each["bbox"]]), rotation)


@whole
def cvat(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """CVAT for images 1.1 (docs.cvat.ai, CVAT format): ``annotations.xml``, pixels from the edge.

    Polygons, masks and turned boxes get a mask; the box is the one around it. What has no box is
    left out: lines, points.
    """
    number = 0
    for number, entry in enumerate(xml_entries(annotations, "image"), start=1):
        image = RegionImage(path=folder, where=f"image {number}", shares=False)
        with image.whole():
            image.published = f"images/{entry.attrib['name']}"
            image.path = published_place(image.published, folder)
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
    rotation, segmentation = of.get("rotation"), None
    box: Sequence[float]
    if shape.tag == "box":
        box = tuple(as_number(of[key]) for key in ("xtl", "ytl", "xbr", "ybr"))
        box, segmentation = turned_box(box, rotation)
    elif shape.tag == "ellipse":
        x, y, across, down = (as_number(of[key]) for key in ("cx", "cy", "rx", "ry"))
        box = _around_ellipse((x, y), (across, down), rotation)
    elif shape.tag == "polygon":
        edges = [as_number(e) for point in of["points"].split(";") for e in point.split(",")]
        box, segmentation = outline(list(zip(edges[::2], edges[1::2], strict=True)))
    elif shape.tag == "mask":
        place = [int(of[key]) for key in ("left", "top", "width", "height")]
        box, segmentation = _cvat_mask(image, of["rle"], *place)
    else:
        raise ValueError(f"a {shape.tag[:30]}, which has no box")
    image.add(box, label=of["label"], segmentation=segmentation)


def _around_ellipse(
    centre: tuple[float, float], radii: tuple[float, float], degrees: Any
) -> tuple[float, ...]:
    """The box around an ellipse that is turned about its centre."""
    (x, y), (across, down) = centre, radii
    angle = math.radians(as_number(degrees or 0))
    sine, cosine = math.sin(angle), math.cos(angle)
    right, below = (
        math.hypot(across * cosine, down * sine),
        math.hypot(across * sine, down * cosine),
    )
    return (x - right, y - below, x + right, y + below)


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
    """Label Studio's export JSON (labelstud.io/guide/export): rectangles, ellipses and polygons in
    percent of the picture, of the one annotation that a task has, or of its ground truth.

    Of a turned rectangle the box around it is taken, and its corners as the mask. Texts of regions
    follow one another as the caption; each is the sentence of its region.
    """
    for number, task in enumerate(json_array(annotations), start=1):
        image = RegionImage(path=folder, where=f"task {number}", shares=False)
        with image.whole():
            image.published = _task_picture(task)
            image.path = published_place(image.published, folder)
            results = _annotation(task)["result"]
            texts = _texts_of_regions([each for each in results if isinstance(each, dict)])
            for at, each in enumerate(results, start=1):
                if not isinstance(each, dict):
                    image.left_out.append(f"result {at}: {str(each)[:40]} is none")
                    continue
                if each["type"] in _NO_REGIONS:
                    continue
                size = stated_size(each, "original_width", "original_height")
                if image.stated not in (None, size):
                    raise ValueError("results of pictures of different sizes")
                image.stated = size
                with image.record(f"result {at}"):
                    _add_result(image, each, texts.get(each.get("id"), ()))
        yield image


def _texts_of_regions(results: list[dict[str, Any]]) -> dict[Any, list[str]]:
    """The texts that were written for a region, by its id."""
    regions = {each.get("id") for each in results if each["type"] not in _NO_REGIONS} - {None}
    found: dict[Any, list[str]] = {}
    for each in results:
        is_of_region = each["type"] == "textarea" and {*each["value"]} & {"x", "points"}
        if is_of_region and each.get("id") in regions:
            text = each["value"]["text"]
            found.setdefault(each["id"], []).extend([text] if isinstance(text, str) else text)
    return found


def _annotation(task: dict[str, Any]) -> dict[str, Any]:
    found = [each for each in task["annotations"] if not each.get("was_cancelled")]
    found = [each for each in found if each.get("ground_truth")] or found
    if len(found) > 1:
        raise ValueError(f"{len(found)} annotations; mark one of them as ground truth")
    return found[0] if found else {"result": []}


def _task_picture(task: dict[str, Any]) -> str:
    names = [each for each in task["data"].values() if isinstance(each, str)]
    places = [name for name in map(_place_of, names) if suffix_of(name) in _PICTURES]
    if len(places) != 1:
        raise ValueError(f"data names {len(places)} pictures, want one")
    return places[0]


def _place_of(address: str) -> str:
    """The path in a picture's address; ``/data/local-files/?d=PATH`` is that of a local file."""
    if "://" not in address and not address.startswith("/data/"):
        return address
    parts = urlsplit(address)
    local = parse_qs(parts.query).get("d") if parts.path.endswith("/local-files/") else None
    return local[0] if local else unquote(parts.path)


def _add_result(image: RegionImage, result: dict[str, Any], texts: Sequence[str]) -> None:
    kind, value = result["type"], result["value"]
    if as_number(result.get("image_rotation") or 0):
        raise ValueError("a turned picture, whose box is none of the file's")
    width, height = checked_size(image.stated or ())
    box: Sequence[float]
    if "radiusX" in value:
        x, y, across, down = (as_number(value[key]) for key in ("x", "y", "radiusX", "radiusY"))
        centre, radii = (
            (x * width / 100, y * height / 100),
            (across * width / 100, down * height / 100),
        )
        box, segmentation = _around_ellipse(centre, radii, value.get("rotation")), None
    elif "points" in value:
        box, segmentation = outline(
            [(as_number(x) * width / 100, as_number(y) * height / 100) for x, y in value["points"]]
        )
    else:
        x, y, w, h = (as_number(value[key]) for key in ("x", "y", "width", "height"))
        box = (x * width / 100, y * height / 100, (x + w) * width / 100, (y + h) * height / 100)
        box, segmentation = turned_box(box, value.get("rotation"), about=(box[0], box[1]))
    spans = [image.say_all(text) for text in texts if text.strip()]
    for label in value.get(kind) or [""]:
        image.add(
            box,
            key="sentences",
            label=label,
            segmentation=segmentation,
            score=result.get("score"),
            spans=spans,
        )
