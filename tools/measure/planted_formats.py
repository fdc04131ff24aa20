"""Write images with captions in published formats, right or with faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq

from glit.dataset.reader import Dataset
from tools.measure.planted_entries import (
    Entry,
    entries_of,
    in_shares,
    lines,
    pairs_of,
    wh,
)
from tools.measure.planted_tools import TOOL_WRITERS


def write_captions(entries: list[Entry], folder: Path) -> Path:
    rows = [{"path": e.name, "caption": e.caption} for e in entries]
    return lines(folder / "captions.jsonl", rows)


def write_coco(entries: list[Entry], folder: Path) -> Path:
    images = [{"id": n, "file_name": e.name} for n, e in enumerate(entries)]
    texts = [{"id": n, "image_id": n, "caption": e.caption} for n, e in enumerate(entries)]
    file = folder / "captions.json"
    file.write_text(json.dumps({"images": images, "annotations": texts}))
    return file


def write_regions(entries: list[Entry], folder: Path) -> Path:
    rows = [
        {"path": e.name, "box_xyxy": wh(box, plain=not e.mixed), "width": e.width,
         "height": e.height}
        for e in entries for box in e.boxes
    ]  # fmt: skip
    return lines(folder / "regions.jsonl", rows)


def write_mdetr(entries: list[Entry], folder: Path) -> Path:
    images = [{"id": n, "file_name": e.name, "caption": e.caption, "width": e.width,
               "height": e.height} for n, e in enumerate(entries)]  # fmt: skip
    boxes = [
        {"image_id": n, "bbox": wh(box, plain=e.mixed),
         "tokens_positive": [phrase[:2]] if phrase else []}
        for n, e in enumerate(entries) for box, phrase in pairs_of(e)
    ]  # fmt: skip
    file = folder / "mdetr.json"
    file.write_text(json.dumps({"images": images, "annotations": boxes}))
    return file


def write_odvg(entries: list[Entry], folder: Path) -> Path:
    rows = []
    for e in entries:
        grounded = [
            {"bbox": wh(box, plain=not e.mixed), "phrase": phrase[2],
             "tokens_positive": [phrase[:2]] if phrase[1] else []}
            for box, phrase in pairs_of(e) if phrase
        ]  # fmt: skip
        rows.append({"filename": e.name, "width": e.width, "height": e.height,
                     "grounding": {"caption": e.caption, "regions": grounded}})  # fmt: skip
    return lines(folder / "odvg.jsonl", rows)


def write_grit(entries: list[Entry], folder: Path) -> Path:
    rows = [
        {"key": f"{n:09}", "file_name": e.name, "caption": e.caption, "ref_exps": [],
         "noun_chunks": [[*map(float, p[:2]), *wh(in_shares(e, b), plain=not e.mixed), 1.0]
                          for b, p in pairs_of(e) if p]}
        for n, e in enumerate(entries)
    ]  # fmt: skip
    lists = pa.list_(pa.list_(pa.float64()))
    texts = dict.fromkeys(("key", "file_name", "caption", "url"), pa.string())
    kinds = {**texts, "ref_exps": lists, "noun_chunks": lists}
    file = folder / "grit.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))), file)
    return file


def write_finehard(entries: list[Entry], folder: Path) -> Path:
    rows = [
        {"f_path": e.name, "caption": e.caption, "bbox_info": [
            {"bbox": wh(in_shares(e, b), plain=not e.mixed), "long_expr": p[2], "short_expr": p[2]}
            for b, p in pairs_of(e) if p]}
        for e in entries
    ]  # fmt: skip
    file = folder / "finehard.json"
    file.write_text(json.dumps(rows))
    return file


def write_genome(entries: list[Entry], folder: Path) -> Path:
    rows = []
    for e in entries:
        boxes = [wh(b, plain=e.mixed) for b in e.boxes]
        keys = ("x", "y", "width", "height")
        regions = [{**dict(zip(keys, b, strict=True)), "phrase": f"thing {n} of {e.row}"}
                   for n, b in enumerate(boxes)]  # fmt: skip
        rows.append({"image_id": e.name.removesuffix(".jpg"), "regions": regions})
    file = folder / "region_descriptions.json"
    file.write_text(json.dumps(rows))
    return file


def write_images(entries: list[Entry], folder: Path) -> Path:
    for each in entries:
        (folder / "images" / each.name).with_suffix(".txt").write_text(each.caption)
    return folder / "images"


def write_metadata(entries: list[Entry], folder: Path) -> Path:
    """A folder of images as the library ``datasets`` has it."""
    rows = [{"file_name": e.name, "text": e.caption} for e in entries]
    lines(folder / "images" / "metadata.jsonl", rows)
    return folder / "images"


def write_tao(entries: list[Entry], folder: Path) -> Path:
    rows = [
        {"image_path": e.name, "width": e.width, "height": e.height, "caption": e.caption,
         "expressions": [
             {"text": p[2], "char_span": p[:2], "instances": [{"bbox": wh(b, plain=not e.mixed)}]}
             for b, p in pairs_of(e) if p]}
        for e in entries
    ]  # fmt: skip
    return lines(folder / "annotations.jsonl", rows)


def write_voc(entries: list[Entry], folder: Path) -> Path:
    """Corners count from 1, the lower right one is inside."""
    (folder / "voc" / "Annotations").mkdir(parents=True)
    (folder / "images").rename(folder / "voc" / "JPEGImages")
    for each in entries:
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = each.name
        size = ElementTree.SubElement(root, "size")
        for name, value in (("width", each.width), ("height", each.height), ("depth", 3)):
            ElementTree.SubElement(size, name).text = str(value)
        for box in each.boxes:
            found = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(found, "name").text = "thing"
            corners = ElementTree.SubElement(found, "bndbox")
            x0, y0, x1, y1 = wh(box, plain=not each.mixed)
            for name, value in (("xmin", x0 + 1), ("ymin", y0 + 1), ("xmax", x1), ("ymax", y1)):
                ElementTree.SubElement(corners, name).text = repr(value)
        file = folder / "voc" / "Annotations" / f"{Path(each.name).stem}.xml"
        ElementTree.ElementTree(root).write(file)
    return folder / "voc"


def write_dataset(entries: list[Entry], folder: Path, dataset: Dataset) -> Path:
    """A copy of the dataset with changed rows; its manifest stays."""
    shutil.copytree(dataset.path, folder / "dataset", ignore=shutil.ignore_patterns("work"))
    clean = entries_of(dataset)
    for name, first in dataset.first_rows().items():
        table = dataset.table(file=name)
        rows = table.to_pylist()
        for number, row in enumerate(rows, start=first):
            if entries[number] != clean[number]:
                _change_row(row, entries[number], clean[number])
        made = pa.Table.from_pylist(rows, schema=table.schema)
        pq.write_table(made, folder / "dataset" / name, row_group_size=100)
    return folder / "dataset"


def _change_row(row: dict[str, Any], entry: Entry, before: Entry) -> None:
    row["source_path"], row["width"], row["height"] = entry.name, entry.width, entry.height
    row["image"]["bytes"] = entry.picture or row["image"]["bytes"]
    if entry.caption != before.caption:
        row["caption"], row["sentences"] = entry.caption, []
    if entry.boxes != before.boxes or entry.mixed:
        boxes = [wh(box, plain=not entry.mixed) for box in entry.boxes]
        row["regions"] = [
            {**row["regions"][0], **dict(zip(("x0", "y0", "x1", "y1"), box, strict=True))}
            for box in boxes
        ]
    changed = {tuple(old): new for old, new in zip(before.phrases, entry.phrases, strict=False)}
    for sentence in row["sentences"]:
        key = (sentence["char_start"], sentence["char_end"], sentence["text"])
        start, end, text = changed.get(key, key)
        sentence |= {"char_start": start, "char_end": end, "text": text}
        sentence["token_start"] += entry.tokens
        sentence["token_end"] += entry.tokens


WRITERS: dict[str, Callable[[list[Entry], Path], Path]] = {
    "captions": write_captions, "coco": write_coco, "regions": write_regions,
    "mdetr": write_mdetr, "odvg": write_odvg, "grit": write_grit, "finehard": write_finehard,
    "visual-genome": write_genome, "images": write_images, "metadata": write_metadata,
    "tao": write_tao, "voc": write_voc, **TOOL_WRITERS,
}  # fmt: skip
