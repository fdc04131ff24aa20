"""Read captions with boxes of NVIDIA TAO, of its auto-label service and of its trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glit.data.frames import stated_size
from glit.data.json_files import json_lines
from glit.inputs.published.files import no_parts, published_place
from glit.inputs.published.region_image import RegionImage
from glit.inputs.published.regions import odvg, phrase_places


def tao(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """``annotations.jsonl`` of TAO's 2D grounding (docs.nvidia.com/tao, auto-label), or the ODVG
    that TAO trains on.

    A line of the former has ``image_path``, ``width``, ``height``, ``cleaned_caption`` (else
    ``caption``) and ``expressions``: ``text``, ``char_span`` of the caption, and ``instances`` of
    ``bbox`` (xyxy pixels) and ``score`` or ``bbox_score``. An expression without ``char_span`` is
    looked for in the caption.
    """
    no_parts(split)
    if "image_path" not in next(json_lines(annotations), {"image_path": ""}):
        yield from odvg(annotations, images, split)
        return
    folder = images or annotations.parent
    for number, line in enumerate(json_lines(annotations), start=1):
        image = RegionImage(path=folder, where=f"line {number}", shares=False)
        with image.whole():
            image.published = line["image_path"]
            image.path = published_place(image.published, folder)
            image.stated = stated_size(line)
            caption = line.get("cleaned_caption") or line["caption"]
            span = image.say(caption)
            for at, each in enumerate(line["expressions"], start=1):
                with image.record(f"expression {at}"):
                    _add_expression(image, each, caption, span)
        yield image


def _add_expression(image: RegionImage, each: dict[str, Any], caption: str, span: Any) -> None:
    if not each["instances"]:
        return
    stated = [each["char_span"]] if each.get("char_span") else ()
    spans = [span(first, last) for first, last in phrase_places(caption, each["text"], stated)]
    for instance in each["instances"]:
        score = instance.get("score", instance.get("bbox_score"))
        image.add(instance["bbox"], key="phrases", score=score, spans=spans)
