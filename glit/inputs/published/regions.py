"""Captions with boxes: FineHARD, GRIT, ODVG, MDETR, Flickr30k Entities, RefCOCO, Visual Genome.

Texts that are of a region and not of the image (Visual Genome, RefCOCO) follow one another as the
caption, and each is the sentence of its region.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from glit.data.bounded_parquet import BoundedParquet
from glit.data.coco import CocoFile, id_of
from glit.data.frames import stated_size, xywh_corners
from glit.data.json_files import json_array, json_lines, load_json
from glit.inputs.published.files import (
    chosen_parts,
    licence_names,
    no_parts,
    plain_pickle,
    stated_licence,
    whole,
)
from glit.inputs.published.label_exports import (
    add_instances,
    coco_image,
    instance_box,
    without_image,
)
from glit.inputs.published.region_image import RegionImage, as_number
from glit.inputs.published.xml_files import element_text, xml_root
from glit.text.spans import Span, find_phrase, same_words

_CHAIN = re.compile(r"\[/EN#(\d+)/\S+ ([^\]]*)\]")
"""A phrase of Flickr30k Entities: ``[/EN#283585/people Two young guys]``."""


@whole
def finehard(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """FineHARD (FG-CLIP, arXiv 2505.05071): a file of ``jsonfiles/``, or that folder.

    Fields as FG-CLIP's trainer reads them (github.com/360CVGroup/FG-CLIP, train_fgclip2.py):
    ``f_path``, ``caption``, ``bbox_info`` with ``bbox`` (shares, sometimes a score after them),
    ``long_expr`` and ``short_expr``. An expression that stands in the caption is a phrase of its
    box; where neither does, the long one follows the caption. Short captions and hard negatives
    are left.
    """
    files = sorted(annotations.glob("*.json")) if annotations.is_dir() else [annotations]
    entries = ((file, each) for file in files for each in enumerate(json_array(file), start=1))
    for file, (number, entry) in entries:
        image = RegionImage(path=folder, where=f"{file.name}, entry {number}")
        with image.whole():
            image.path, image.stated = folder / entry["f_path"], stated_size(entry)
            image.say(entry["caption"])
            for at, each in enumerate(entry.get("bbox_info") or (), start=1):
                with image.record(f"box {at}"):
                    _add_expressions(image, each)
        yield image


def _add_expressions(image: RegionImage, each: dict[str, Any]) -> None:
    """Add a box of FineHARD with its expressions."""
    box = each["bbox"]
    score = box[4] if len(box) > 4 else None
    texts = (each["long_expr"], each["short_expr"])
    found = [find_phrase(image.caption, text) for text in texts]
    spans = [span for span in found if span is not None]
    if spans:
        image.add(box, key="phrases", score=score, spans=spans)
    else:
        text = each["long_expr"] or each["short_expr"]
        image.add(box, key="sentences", score=score, spans=[image.say_all(text)])


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
        with BoundedParquet(file) as table:
            columns = [name for name in table.schema_arrow.names if name in _GRIT_COLUMNS]
            number = 0
            for batch in table.iter_batches(4096, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield _grit_row(row, folder, f"{file.name}, row {number}")


_GRIT_COLUMNS = {"key", "file_name", "caption", "noun_chunks", "ref_exps", "url", "license",
                 "original_width", "original_height", "width", "height"}  # fmt: skip
_GRIT_SIZE = ("original_width", "original_height")
"""Keys for the size of the fetched picture, which img2dataset may have cut to another shape since.
"""


def _grit_row(row: dict[str, Any], folder: Path, where: str) -> RegionImage:
    image = RegionImage(path=folder, where=where)
    with image.whole():
        image.path = folder / (row.get("file_name") or f"{row['key'][:5]}/{row['key']}.jpg")
        image.stated = stated_size(row, *_GRIT_SIZE) or stated_size(row)
        image.licence = stated_licence(row, {})
        span = image.say(row["caption"] or "")
        for each in [*(row["noun_chunks"] or ()), *(row["ref_exps"] or ())]:
            with image.record():
                start, end, *box, score = each
                image.add(box, key="phrases", score=score, spans=[span(int(start), int(end))])
    return image


def odvg(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """ODVG of MM-Grounding-DINO and of NVIDIA TAO's trainer, GroundingCap-1M of LLMDet, or ``glit
    export --to odvg``.

    Fields as their loaders read them (mmdet/datasets/odvg.py of open-mmlab/mmdetection,
    iSEE-Laboratory/LLMDet, dataloader/odvg.py of NVIDIA/tao_pytorch_backend): ``filename``, of TAO
    ``file_name``, ``grounding`` with ``caption`` and ``regions`` of
    ``bbox`` (one or several, xyxy pixels), ``phrase`` and ``tokens_positive``; or ``detection``
    with ``instances`` of ``bbox`` and ``category``. GroundingCap's long caption, the second of
    ``conversations``, follows the short one.
    """
    no_parts(split)
    beside = annotations.parent / "images"
    folder = images or (beside if beside.is_dir() else annotations.parent)
    for number, line in enumerate(json_lines(annotations), start=1):
        image = RegionImage(path=folder, where=f"line {number}", shares=False)
        with image.whole():
            image.path = folder / (line.get("filename") or line["file_name"])
            image.stated = stated_size(line)
            image.licence = stated_licence(line, {})
            _read_odvg(image, line)
        yield image


def _read_odvg(image: RegionImage, line: dict[str, Any]) -> None:
    grounding = line.get("grounding") or {"caption": "", "regions": []}
    caption = grounding["caption"]
    span = image.say(caption)
    for each in grounding["regions"]:
        with image.record():
            places = phrase_places(caption, each["phrase"], each.get("tokens_positive") or ())
            spans = [span(first, last) for first, last in places]
            boxes = each["bbox"] if isinstance(each["bbox"][0], list) else [each["bbox"]]
            for box in boxes:
                image.add(box, key="phrases", spans=spans)
    for each in (line.get("detection") or {}).get("instances", ()):
        with image.record():
            image.add(each["bbox"], label=each.get("category", ""))
    if line.get("conversations"):
        image.say(line["conversations"][1]["value"])


def phrase_places(
    caption: str, phrase: str | list[str], stated: Sequence[Sequence[int]]
) -> Sequence[Sequence[int]]:
    """The spans of a phrase: as they are stated, if the caption has its words there; else found.

    Raises:
        ValueError: the phrase is not in the caption, or not where it is said to be.
    """
    said = phrase if isinstance(phrase, str) else " ".join(phrase)
    if not stated:
        found = [
            find_phrase(caption, each) or find_phrase(caption, each, ignore_case=True)
            for each in ([phrase] if isinstance(phrase, str) else phrase)
        ]
        if not found or None in found:
            raise ValueError(f"the phrase {said[:80]!r} is not in the caption {caption[:60]!r}")
        return [span for span in found if span is not None]
    words = " ".join(caption[first:last] for first, last in stated)
    if not same_words(words, said):
        raise ValueError(
            f"tokens_positive {str([*stated])[:60]} is {words[:60]!r}, the phrase is "
            f"{said[:60]!r}; want characters of the caption, not bytes or UTF-16 units"
        )
    return stated


def mdetr(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """MDETR's ``final_*.json``, or ``glit export --to mdetr``: COCO's layout with a ``caption`` an
    image and ``tokens_positive`` an annotation."""
    no_parts(split)
    beside = annotations.parent / "images"
    folder = images or (beside if beside.is_dir() else annotations.parent)
    values = load_json(annotations)
    file, licences, found = CocoFile(values), licence_names(values), dict[Path, RegionImage]()
    for of in file.images:
        own = coco_image(of, licences)
        if not own.fault:
            with own.whole():
                own.path = folder / of.file_name
        if own.fault:
            yield own
            continue
        image = found.setdefault(own.path, own)
        if image.stated != own.stated:
            image.fault = f"states another size than {own.where}"
        with image.whole():
            span = image.say(of.entry["caption"])
            add_instances(image, file, of, partial(_positive, span), labelled=False)
    yield from found.values()
    yield from without_image(file)


def _positive(span: Callable[[int, int], Span], annotation: dict[str, Any]) -> list[Span]:
    return [span(first, last) for first, last in annotation["tokens_positive"]]


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
        image = RegionImage(path=annotations, where=f"{name}.xml", shares=False)
        with image.whole():
            _read_entities(image, annotations, name, images or annotations)
        yield image


def _read_entities(image: RegionImage, annotations: Path, name: str, folder: Path) -> None:
    if not (file := annotations / "Annotations" / f"{name}.xml").is_file():
        raise ValueError(f"no file {name}.xml in Annotations")
    root = xml_root(file, "annotation")
    width, height = (as_number(element_text(root, f"size/{side}")) for side in ("width", "height"))
    image.path, image.stated = folder / element_text(root, "filename"), (width, height)
    boxes: dict[str, list[list[float]]] = {}
    for number, each in enumerate(root.iter("object"), start=1):
        if (box := each.find("bndbox")) is not None:
            with image.record(f"object {number}"):
                x0, y0, x1, y1 = (
                    as_number(element_text(box, k)) for k in ("xmin", "ymin", "xmax", "ymax")
                )
                for chain in each.iter("name"):
                    boxes.setdefault(chain.text or "", []).append([x0 - 1, y0 - 1, x1, y1])
    sentences = (annotations / "Sentences" / f"{name}.txt").read_text(encoding="utf-8")
    for line in filter(str.strip, sentences.splitlines()):
        _say_entities(image, line, boxes)


def _say_entities(image: RegionImage, line: str, boxes: dict[str, list[list[float]]]) -> None:
    plain, at, spans = "", 0, []
    for match in _CHAIN.finditer(line):
        plain += line[at : match.start()]
        if match[2].strip():
            spans.append((match[1], len(plain), len(plain) + len(match[2])))
        plain, at = plain + match[2], match.end()
    span = image.say(plain + line[at:])
    for chain, first, last in spans:
        for box in boxes.get(chain, ()):
            with image.record():
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
    file = CocoFile(values)
    images_of = {id_of(of.entry, "id"): of for of in file.images}
    boxes = {id_of(each, "id"): each for each in values["annotations"]}
    found: dict[Any, RegionImage] = {}
    for ref in sorted((ref for ref in refs if ref["split"] in parts), key=lambda r: r["ref_id"]):
        key = ref["image_id"]
        where = f"image {key!r:.40}"
        image = found.setdefault(key, RegionImage(path=annotations, where=where, shares=False))
        with image.whole():
            of = images_of[key]
            image.path = (images or annotations.parent) / of.file_name
            image.stated = stated_size(of.entry)
            if of.fault:
                raise ValueError(of.fault)
            with image.record(f"reference {ref['ref_id']!r:.40}"):
                each = boxes[ref["ann_id"]]
                box, _ = instance_box(each)
                said = [str(text["sent"]) for text in ref["sentences"]]
                spans = [image.say_all(text) for text in said if text.strip()]
                image.add(box, key="sentences", label=file.category(each), spans=spans)
    yield from found.values()


@whole
def visual_genome(annotations: Path, folder: Path) -> Iterator[RegionImage]:
    """Visual Genome's ``region_descriptions.json``: ``x``, ``y``, ``width``, ``height`` in pixels
    and ``phrase`` of every region (its data readme), ``id`` or ``image_id`` of the image, which
    lies in the folder, or in ``VG_100K`` or ``VG_100K_2`` below it. The sizes of the pictures are
    those of ``image_data.json``, if it lies beside the file.

    The descriptions of an image follow one another as its caption; each is the sentence of its
    region.
    """
    sizes = _genome_sizes(annotations.parent / "image_data.json")
    for number, entry in enumerate(json_array(annotations), start=1):
        image = RegionImage(path=folder, where=f"entry {number}", shares=False)
        with image.whole():
            key = entry.get("image_id", entry.get("id"))
            places = [folder / part / f"{key}.jpg" for part in ("", "VG_100K", "VG_100K_2")]
            image.path = next((place for place in places if place.is_file()), places[0])
            image.stated = stated_size(entry) or sizes.get(key)
            for at, each in enumerate(entry["regions"], start=1):
                with image.record(f"region {at}"):
                    sides = [as_number(each[name]) for name in ("x", "y", "width", "height")]
                    if each["phrase"].strip():
                        spans = [image.say_all(each["phrase"])]
                        image.add(xywh_corners(sides), key="sentences", spans=spans)
        yield image


def _genome_sizes(file: Path) -> dict[Any, tuple[Any, Any]]:
    """Width and height by image; empty if there is no such file."""
    if not file.is_file():
        return {}
    entries = json_array(file)
    return {e.get("image_id", e.get("id")): (e["width"], e["height"]) for e in entries}
