"""Write images with boxes as annotation tools have them, and as tars and the Hub's Parquet."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq

from tools.measure.planted_entries import Entry, in_shares, pairs_of, wh


def _json(file: Path, values: Any) -> Path:
    file.write_text(json.dumps(values))
    return file


def _images(entries: list[Entry]) -> list[dict[str, Any]]:
    return [{"id": n, "file_name": e.name, "width": e.width, "height": e.height}
            for n, e in enumerate(entries)]  # fmt: skip


def _nested(tag: str, *inner: ElementTree.Element, **values: Any) -> ElementTree.Element:
    """An element that holds texts, each under its name, and other elements."""
    made = ElementTree.Element(tag)
    for name, value in values.items():
        ElementTree.SubElement(made, name).text = str(value)
    made.extend(inner)
    return made


def write_refcoco(entries: list[Entry], folder: Path) -> Path:
    boxes, refs = [], []
    for n, entry in enumerate(entries):
        for box, phrase in pairs_of(entry):
            key = len(boxes)
            said = phrase[2] if phrase else f"thing {key} of {entry.row}"
            boxes.append({"id": key, "image_id": n, "category_id": 1,
                          "bbox": wh(box, plain=entry.mixed)})  # fmt: skip
            refs.append({"ref_id": key, "ann_id": key, "image_id": n, "split": "train",
                         "category_id": 1, "sentences": [{"sent": said, "raw": said}]})  # fmt: skip
    values = {"images": _images(entries), "annotations": boxes,
              "categories": [{"id": 1, "name": "thing"}]}  # fmt: skip
    _json(folder / "instances.json", values)
    file = folder / "refs(unc).p"
    file.write_bytes(pickle.dumps(refs))
    return file


def write_entities(entries: list[Entry], folder: Path) -> Path:
    """Corners count from 1, the lower right one is inside."""
    root = folder / "entities"
    (root / "Annotations").mkdir(parents=True)
    (root / "Sentences").mkdir()
    for entry in entries:
        things = []
        for n, box in enumerate(entry.boxes):
            x0, y0, x1, y1 = wh(box, plain=not entry.mixed)
            place = _nested("bndbox", xmin=x0 + 1, ymin=y0 + 1, xmax=x1, ymax=y1)
            things.append(_nested("object", place, name=n + 1))
        size = _nested("size", width=entry.width, height=entry.height, depth=3)
        found = _nested("annotation", size, *things, filename=entry.name)
        ElementTree.ElementTree(found).write(root / "Annotations" / f"{entry.row:06}.xml")
        text, at = "", 0
        for n, (start, end, words) in sorted(enumerate(entry.phrases), key=lambda each: each[1][0]):
            text += f"{entry.caption[at:start]}[/EN#{n + 1}/scene {words}]"
            at = end
        (root / "Sentences" / f"{entry.row:06}.txt").write_text(text + entry.caption[at:])
    return root


def write_tar(entries: list[Entry], folder: Path) -> Path:
    with tarfile.open(folder / "train.tar", "w") as tar:
        for entry in entries:
            stem, _, suffix = entry.name.rpartition(".")
            for end, data in ((suffix, entry.picture or b""), ("txt", entry.caption.encode())):
                member = tarfile.TarInfo(f"{stem}.{end}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return folder / "train.tar"


def write_hub(entries: list[Entry], folder: Path) -> Path:
    rows = [
        {"image": {"bytes": e.picture, "path": e.name}, "width": e.width,
         "height": e.height, "caption": e.caption,
         "objects": {"bbox": [wh(box, plain=e.mixed) for box in e.boxes],
                     "category": ["thing" for _ in e.boxes]}}
        for e in entries
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet", row_group_size=100)
    return folder / "train.parquet"


def write_yolo(entries: list[Entry], folder: Path) -> Path:
    root = folder / "yolo"
    (root / "labels" / "train").mkdir(parents=True)
    (root / "images").mkdir()
    (folder / "images").rename(root / "images" / "train")
    (root / "data.yaml").write_text("names: [thing]\n")
    for entry in entries:
        text = ""
        for box in entry.boxes:
            x0, y0, x1, y1 = in_shares(entry, box)
            if not entry.mixed:
                x0, y0, x1, y1 = (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0
            text += f"0 {x0} {y0} {x1} {y1}\n"
        (root / "labels" / "train" / f"{entry.name.removesuffix('.png')}.txt").write_text(text)
    return root


def write_labelme(entries: list[Entry], folder: Path) -> Path:
    for entry in entries:
        shapes = [{"label": "thing", "shape_type": "rectangle", "points": [box[:2], box[2:]]}
                  for box in entry.boxes]  # fmt: skip
        values = {"version": "6.3.1", "flags": {}, "shapes": shapes, "imagePath": entry.name,
                  "imageData": None, "imageHeight": entry.height,
                  "imageWidth": entry.width}  # fmt: skip
        _json(folder / "images" / f"{entry.row:06}.json", values)
    return folder / "images"


def write_cvat(entries: list[Entry], folder: Path) -> Path:
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    for n, entry in enumerate(entries):
        about = {"id": str(n), "name": entry.name, "width": str(entry.width),
                 "height": str(entry.height)}  # fmt: skip
        image = ElementTree.SubElement(root, "image", about)
        for box in entry.boxes:
            edges = zip(("xtl", "ytl", "xbr", "ybr"), wh(box, plain=not entry.mixed), strict=True)
            ElementTree.SubElement(
                image, "box", {"label": "thing", **{k: str(edge) for k, edge in edges}}
            )
    ElementTree.ElementTree(root).write(folder / "annotations.xml")
    return folder / "annotations.xml"


def write_studio(entries: list[Entry], folder: Path) -> Path:
    """Boxes in percent of the picture."""
    tasks = []
    for n, entry in enumerate(entries):
        results = []
        for box in entry.boxes:
            made = [100 * share for share in in_shares(entry, box)]
            made = made if entry.mixed else wh(made)
            value = dict(zip(("x", "y", "width", "height"), made, strict=True))
            results.append({
                "type": "rectanglelabels", "original_width": entry.width,
                "original_height": entry.height,
                "value": {**value, "rotation": 0, "rectanglelabels": ["thing"]},
            })  # fmt: skip
        tasks.append({"id": n, "data": {"image": entry.name}, "annotations": [{"result": results}]})
    return _json(folder / "tasks.json", tasks)


def write_instances(entries: list[Entry], folder: Path) -> Path:
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": wh(box, plain=e.mixed)}
             for n, e in enumerate(entries) for box in e.boxes]  # fmt: skip
    values = {"images": _images(entries), "annotations": boxes,
              "categories": [{"id": 1, "name": "thing"}]}  # fmt: skip
    return _json(folder / "instances.json", values)


TOOL_WRITERS: dict[str, Callable[[list[Entry], Path], Path]] = {
    "refcoco": write_refcoco, "flickr30k-entities": write_entities, "webdataset": write_tar,
    "hf": write_hub, "yolo": write_yolo, "labelme": write_labelme, "cvat": write_cvat,
    "label-studio": write_studio, "coco-instances": write_instances,
}  # fmt: skip
