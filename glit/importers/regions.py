"""Read published captions with boxes, as captions and rows of ``glit build --regions``.

Boxes that leave their image are cut at its edge, and those that are empty then are left out; both
are counted. Texts that are of a region and not of the image (Visual Genome, RefCOCO) follow one
another as the caption, and each is the sentence of its region.
"""

from __future__ import annotations

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from glit.backends.region_files import phrase_span
from glit.evaluation.readers.files import (
    chosen_parts,
    json_array,
    json_lines,
    load_json,
    no_parts,
    plain_pickle,
)

Span = tuple[int, int]
_CHAIN = re.compile(r"\[/EN#(\d+)/\S+ ([^\]]*)\]")
"""A phrase of Flickr30k Entities: ``[/EN#283585/people Two young guys]``."""


@dataclass(slots=True, kw_only=True)
class RegionImage:
    """An image, its caption and its regions."""

    path: Path
    """The image file; it need not exist."""
    size: tuple[float, float] | None = (1.0, 1.0)
    """Width and height in the units of the boxes: pixels, or 1 for shares; None for those of the
    file."""
    caption: str = ""
    rows: dict[tuple[float, ...], dict[str, Any]] = field(default_factory=dict)
    """Regions by their box, xyxy; texts are spans of the caption."""
    said: dict[str, int] = field(default_factory=dict)
    """Where each text begins in the caption."""

    def say(self, text: str) -> Callable[[int, int], Span]:
        """Add a text to the caption; returns what makes its spans those of the caption.

        A text that is there already is not said again.
        """
        lead = len(text) - len(text.lstrip())
        plain = unicodedata.normalize("NFC", text.strip())
        ended = plain if not plain or plain[-1] in ".!?\"')”’" else f"{plain}."
        if ended not in self.said:
            before = f"{self.caption} " if self.caption and ended else self.caption
            self.caption, self.said[ended] = before + ended, len(before)
        start = self.said[ended]

        def place(index: int) -> int:
            told = len(unicodedata.normalize("NFC", text[lead : max(lead, index)]))
            return start + min(told, len(plain))

        return lambda first, last: (place(first), place(last))

    def add(self, box: Sequence[float], *, key: str = "", label: str = "", **rest: Any) -> None:
        """Add a region, and to ``rest[key]`` of one with this box.

        Args:
            box: xyxy.
            key: ``sentences`` or ``phrases``; empty for neither.
            label: of the region.
            rest: ``score``, and ``spans``: those of the texts.
        """
        row = self.rows.setdefault(tuple(map(float, box[:4])), {})
        if label:
            row.setdefault("label", label)
        if rest.get("score") is not None:
            row.setdefault("score", min(max(float(rest["score"]), 0.0), 1.0))
        for span in rest.get("spans", ()):
            if list(span) not in row.setdefault(key, []):
                row[key].append(list(span))


def finehard(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """FineHARD (FG-CLIP, arXiv 2505.05071): a file of ``jsonfiles/``, or that folder.

    Fields as FG-CLIP's trainer reads them (github.com/360CVGroup/FG-CLIP, train_fgclip2.py):
    ``f_path``, ``caption``, ``bbox_info`` with ``bbox`` (shares, sometimes a score after them),
    ``long_expr`` and ``short_expr``. An expression that stands in the caption is a phrase of its
    box; where neither does, the long one follows the caption. Short captions and hard negatives
    are left.
    """
    no_parts(split)
    files = sorted(annotations.glob("*.json")) if annotations.is_dir() else [annotations]
    folder = images or annotations.parent
    for entry in (each for file in files for each in json_array(file)):
        image = RegionImage(path=folder / entry["f_path"])
        image.say(entry["caption"])
        for each in entry.get("bbox_info") or ():
            box = each["bbox"]
            score = box[4] if len(box) > 4 else None
            spans = []
            for text in (each["long_expr"], each["short_expr"]):
                try:
                    spans.append(phrase_span(image.caption, unicodedata.normalize("NFC", text)))
                except ValueError:
                    continue
            if spans:
                image.add(box, key="phrases", score=score, spans=spans)
            else:
                text = each["long_expr"] or each["short_expr"]
                image.add(box, key="sentences", score=score, spans=[image.say(text)(0, len(text))])
        yield image


def grit(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """GRIT (Kosmos-2, arXiv 2306.14824), or ``glit export --to grit``: a Parquet file, or a folder.

    Fields as its card has them (huggingface.co/datasets/zzliang/GRIT) once img2dataset has fetched
    the pictures with ``--output_format files``: ``key``, ``caption``, and in ``noun_chunks`` and
    ``ref_exps`` lists of start, end, x0, y0, x1, y1 (shares) and score. Both are phrases of their
    boxes.
    """
    no_parts(split)
    files = sorted(annotations.glob("*.parquet")) if annotations.is_dir() else [annotations]
    folder = images or (annotations if annotations.is_dir() else annotations.parent)
    for file in files:
        with pq.ParquetFile(file) as table:
            names = {"key", "file_name", "caption", "noun_chunks", "ref_exps"}
            columns = [name for name in table.schema_arrow.names if name in names]
            for batch in table.iter_batches(4096, columns=columns):
                for row in batch.to_pylist():
                    yield _grit_row(row, folder)


def _grit_row(row: dict[str, Any], folder: Path) -> RegionImage:
    path = folder / (row.get("file_name") or f"{row['key'][:5]}/{row['key']}.jpg")
    image = RegionImage(path=path)
    span = image.say(row["caption"] or "")
    for start, end, *box, score in [*row["noun_chunks"], *row["ref_exps"]]:
        image.add(box, key="phrases", score=score, spans=[span(int(start), int(end))])
    return image


def odvg(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """ODVG of MM-Grounding-DINO, GroundingCap-1M of LLMDet, or ``glit export --to odvg``.

    Fields as their loaders read them (mmdet/datasets/odvg.py of open-mmlab/mmdetection and
    iSEE-Laboratory/LLMDet): ``filename``, ``grounding`` with ``caption`` and ``regions`` of
    ``bbox`` (one or several, xyxy pixels), ``phrase`` and ``tokens_positive``; or ``detection``
    with ``instances`` of ``bbox`` and ``category``. GroundingCap's long caption, the second of
    ``conversations``, follows the short one.
    """
    no_parts(split)
    beside = annotations.parent / "images"
    folder = images or (beside if beside.is_dir() else annotations.parent)
    for line in json_lines(annotations):
        image = RegionImage(path=folder / line["filename"], size=(line["width"], line["height"]))
        grounding = line.get("grounding") or {"caption": "", "regions": []}
        span = image.say(grounding["caption"])
        for each in grounding["regions"]:
            places = each.get("tokens_positive") or [_found(grounding["caption"], each["phrase"])]
            spans = [span(first, last) for first, last in places]
            boxes = each["bbox"] if isinstance(each["bbox"][0], list) else [each["bbox"]]
            for box in boxes:
                image.add(box, key="phrases", spans=spans)
        for each in (line.get("detection") or {}).get("instances", ()):
            image.add(each["bbox"], label=each.get("category", ""))
        if line.get("conversations"):
            image.say(line["conversations"][1]["value"])
        yield image


def _found(caption: str, phrase: str) -> Span:
    start = caption.lower().find(phrase.lower())
    if start < 0:
        raise ValueError(f"the phrase {phrase!r} is not in the caption {caption!r:.60}")
    return start, start + len(phrase)


def mdetr(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """MDETR's ``final_*.json``, or ``glit export --to mdetr``: COCO's layout with a ``caption`` an
    image and ``tokens_positive`` an annotation."""
    no_parts(split)
    beside = annotations.parent / "images"
    folder = images or (beside if beside.is_dir() else annotations.parent)
    values = load_json(annotations)
    boxes: dict[Any, list[dict[str, Any]]] = {}
    for each in values["annotations"]:
        boxes.setdefault(each["image_id"], []).append(each)
    found: dict[Path, RegionImage] = {}
    for entry in values["images"]:
        path = folder / entry["file_name"]
        size = (entry["width"], entry["height"])
        image = found.setdefault(path, RegionImage(path=path, size=size))
        span = image.say(entry["caption"])
        for each in boxes.get(entry["id"], ()):
            spans = [span(first, last) for first, last in each["tokens_positive"]]
            image.add(_xyxy(each["bbox"]), key="phrases", spans=spans)
    yield from found.values()


def flickr30k_entities(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[RegionImage]:
    """Flickr30k Entities (github.com/BryanPlummer/flickr30k_entities): the folder with
    ``Annotations/*.xml``, ``Sentences/*.txt``, and ``train.txt`` and the like for ``--split``.

    Five sentences an image; ``[/EN#7/people Two guys]`` is the phrase of the boxes of 7, whose
    pixels count from 1 to the last one inside. Phrases without a box are left.
    """
    parts = sorted(file.stem for file in annotations.glob("*.txt"))
    chosen = chosen_parts(split, parts) if split not in (None, "all") else set()
    lists = [(annotations / f"{part}.txt").read_text().split() for part in sorted(chosen)]
    found = sorted(file.stem for file in (annotations / "Sentences").glob("*.txt"))
    for name in [each for names in lists for each in names] if lists else found:
        root = ET.parse(annotations / "Annotations" / f"{name}.xml").getroot()
        size = (float(_text(root, "size/width")), float(_text(root, "size/height")))
        path = (images or annotations) / _text(root, "filename")
        image = RegionImage(path=path, size=size)
        boxes: dict[str, list[list[float]]] = {}
        for each in root.iter("object"):
            if (box := each.find("bndbox")) is not None:
                x0, y0, x1, y1 = (float(_text(box, k)) for k in ("xmin", "ymin", "xmax", "ymax"))
                for chain in each.iter("name"):
                    boxes.setdefault(chain.text or "", []).append([x0 - 1, y0 - 1, x1, y1])
        sentences = (annotations / "Sentences" / f"{name}.txt").read_text(encoding="utf-8")
        for line in filter(str.strip, sentences.splitlines()):
            _say_entities(image, line, boxes)
        yield image


def _say_entities(image: RegionImage, line: str, boxes: dict[str, list[list[float]]]) -> None:
    plain, at, spans = "", 0, []
    for match in _CHAIN.finditer(line):
        plain += line[at : match.start()]
        spans.append((match[1], len(plain), len(plain) + len(match[2])))
        plain, at = plain + match[2], match.end()
    span = image.say(plain + line[at:])
    for chain, first, last in spans:
        for box in boxes.get(chain, ()):
            image.add(box, key="phrases", spans=[span(first, last)])


def refcoco(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """RefCOCO, RefCOCO+ and RefCOCOg (github.com/lichengunc/refer): ``refs(unc).p`` or the like,
    with ``instances.json`` beside it; the pickle is read as plain data.

    The expressions of an image follow one another as its caption; each is the sentence of its
    region.
    """
    refs = plain_pickle(annotations.read_bytes())
    values = load_json(annotations.parent / "instances.json")
    parts = chosen_parts(split, sorted({ref["split"] for ref in refs}))
    boxes = {each["id"]: each for each in values["annotations"]}
    labels = {each["id"]: each["name"] for each in values["categories"]}
    known = {each["id"]: each for each in values["images"]}
    found: dict[Any, RegionImage] = {}
    for ref in sorted((ref for ref in refs if ref["split"] in parts), key=lambda r: r["ref_id"]):
        entry, box = known[ref["image_id"]], boxes[ref["ann_id"]]
        path = (images or annotations.parent) / entry["file_name"]
        size = (entry["width"], entry["height"])
        image = found.setdefault(entry["id"], RegionImage(path=path, size=size))
        said = [each["sent"] for each in ref["sentences"]]
        spans = [image.say(text)(0, len(text)) for text in said]
        label = labels.get(box["category_id"], "")
        image.add(_xyxy(box["bbox"]), key="sentences", label=label, spans=spans)
    yield from found.values()


def visual_genome(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[RegionImage]:
    """Visual Genome's ``region_descriptions.json``: ``x``, ``y``, ``width``, ``height`` in pixels
    and ``phrase`` of every region (its data readme), ``id`` or ``image_id`` of the image, which
    lies in the folder, or in ``VG_100K`` or ``VG_100K_2`` below it.

    The descriptions of an image follow one another as its caption; each is the sentence of its
    region.
    """
    no_parts(split)
    folder = images or annotations.parent
    for entry in json_array(annotations):
        name = f"{entry.get('image_id', entry.get('id'))}.jpg"
        places = [folder / part / name for part in ("", "VG_100K", "VG_100K_2")]
        path = next((place for place in places if place.is_file()), places[0])
        image = RegionImage(path=path, size=None)
        for each in entry["regions"]:
            if text := each["phrase"].strip():
                box = _xyxy([each[name] for name in ("x", "y", "width", "height")])
                image.add(box, key="sentences", spans=[image.say(text)(0, len(text))])
        yield image


def picture_size(path: Path) -> tuple[float, float]:
    """Width and height of an image file; endless for a damaged one, which a build drops."""
    try:
        with Image.open(path) as picture:
            return picture.size
    except OSError:
        return math.inf, math.inf


def _xyxy(box: Sequence[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, x + width, y + height]


def _text(element: ET.Element, path: str) -> str:
    found = element.findtext(path)
    if found is None:
        raise ValueError(f"no <{path}> in <{element.tag}>")
    return found


REGION_IMPORTERS: dict[str, Callable[[Path, Path | None, str | None], Iterator[RegionImage]]] = {
    "finehard": finehard,
    "flickr30k-entities": flickr30k_entities,
    "grit": grit,
    "mdetr": mdetr,
    "odvg": odvg,
    "refcoco": refcoco,
    "visual-genome": visual_genome,
}
"""By the name that ``glit import --format`` takes."""
