"""Items of published files, caption files, region files, and images in folders and shards.

The readers are those of ``glit import`` and ``glit build``; here their records become items.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from glit.data.frames import XYXY, stated_size
from glit.dataset.manifest import MANIFEST
from glit.errors import InputError, UserError, cut
from glit.inputs.files import ImageFiles
from glit.inputs.published import FORMATS, CaptionFormat, RegionFormat
from glit.inputs.published.files import ALL, AnnotatedImage, leads_out, no_parts, on_disk
from glit.inputs.published.region_image import RegionImage
from glit.inputs.published.user_regions import read_regions
from glit.inputs.region_file import SHARES, box_corners
from glit.inputs.source import entries, find_source
from glit.inputs.user_captions import read_captions
from glit.inspection.captions import most_frequent_language
from glit.inspection.findings import Estimate
from glit.inspection.formats import OTHERS, format_of
from glit.inspection.items import Item, Source, TextSpan, as_box
from glit.inspection.rows import DatasetSource
from glit.pipeline.work.state import STATE
from glit.storage.members import REFUSED, in_cases, stem
from glit.storage.store import Entry, inside

_NOT_OF_FORMAT = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, SyntaxError, OverflowError,
    OSError, UserError,
)  # fmt: skip
_MOST_WHOLE = 2 << 30
"""Bytes of a file that is read as a whole, as its format has to be."""
_GLANCE = 200
"""Images whose captions tell the language of a file."""
_LEFT_OUT = (
    (re.compile(r"is not in the caption"), "text-outside"),
    (re.compile(r"tokens_positive|is no span|nothing but whitespace"), "span-words"),
    (re.compile(r"finite numbers|a box of \d+ numbers"), "box-empty"),
    (re.compile(r": pixels, want shares"), "box-units"),
    (re.compile(r": leaves the picture, want shares"), "box-outside"),
)
"""What readers say of regions that cannot be right, and the codes of it."""


def open_source(what: str, *, form: str | None, images: str, split: str | None) -> Source:
    """A dataset, or a file or folder of others.

    Args:
        what: folder, file or address.
        form: its format; None finds it out.
        images: the folder of pictures; empty for none.
        split: parts of the annotations; None for all.

    Raises:
        UserError: there is none, or its format cannot be told.
        DatasetError: its manifest is damaged.
    """
    own = (MANIFEST, f"work/{STATE}")
    is_dataset = any(os.path.isfile(os.path.join(what, name)) for name in own)
    if form == "glit" or (form is None and ("://" in what or is_dataset)):
        if split is not None:
            raise InputError(f"--split {split}: is of annotations; {what} is a dataset")
        return DatasetSource(what, images)
    if images and not os.path.isdir(images):
        raise InputError(f"--images {images}: no such folder")
    found, path = format_of(Path(what), form)
    if found in OTHERS:
        no_parts(split)
    return FileSource(path, found, Path(images) if images else None, split)


class FileSource:
    """A published file or folder; see :class:`glit.inspection.items.Source`.

    Args:
        path: the file or folder.
        form: its format, one of :func:`glit.inspection.formats.known_formats`.
        images: the folder of the pictures; None looks where the format has them.
        split: parts of the annotations; None for all.

    Raises:
        InputError: nothing of the file can be read.
    """

    def __init__(self, path: Path, form: str, images: Path | None, split: str | None) -> None:
        self.what, self.format, self.total, self.unlooked = str(path), form, 0, {}
        self._path, self._images, self._split = path, images, split
        if images is None and form in ("coco", "flickr30k") and (path.parent / "images").is_dir():
            self._images = path.parent / "images"  # as glit export writes them
        self._folder = self._picture_folder()
        self.pictures = "" if form == "images" else str(self._folder)
        self._files = ImageFiles(self._folder)
        if _is_read_whole(path, form) and path.stat().st_size > _MOST_WHOLE:
            raise InputError(f"{path}: more than 2 GiB, which {form} has to read as a whole")
        self._rest = self._read()
        self._first = list(islice(self._rest, _GLANCE))
        said = (caption for each in self._first for caption in each.captions or ())
        self.language = most_frequent_language(said)

    def estimates(self) -> tuple[Estimate, ...]:
        """None: no file of others has calibrated probabilities."""
        return ()

    def items(self) -> Iterator[Item]:
        """Yield the images, once; what is not of the format is a fault, and reading ends."""
        while self._first:
            yield self._first.pop(0)
        yield from self._rest

    def _read(self) -> Iterator[Item]:
        where, number = "", 0
        try:
            for item in self._items():
                where, number = item.where, number + 1
                yield item
        except _NOT_OF_FORMAT as error:
            is_told = isinstance(error, UserError)
            if is_told and not number:
                raise
            said = str(error) if is_told else f"{type(error).__name__}: {error}"
            if not number:
                raise InputError(
                    f"{self._path}: not {self.format} as published ({cut(said)}); name the format "
                    "with --format"
                ) from error
            detail = f"reading stopped after {where or f'image {number}'}: {cut(said)}"
            yield Item(name=self._path.name, faults=(("unreadable", detail),))

    def _items(self) -> Iterator[Item]:
        if self.format == "images":
            return self._of_images()
        if self.format in ("captions", "regions"):
            read = self._of_captions if self.format == "captions" else self._of_regions
            return read()
        form = FORMATS[self.format]
        images = self._images
        if images is None and isinstance(form, CaptionFormat) and form.images_here:
            images = self._folder
        if isinstance(form, CaptionFormat):
            return map(self._annotated, form.read(self._path, images, self._split or ALL))
        return map(self._region_image, form.read(self._path, images, self._split or ALL))

    def _picture_folder(self) -> Path:
        beside = self._path if self._path.is_dir() else self._path.parent
        if self.format in FORMATS:
            form = FORMATS[self.format]
            if not (isinstance(form, CaptionFormat) and form.images_here):
                return form.picture_folder(self._path, self._images)
        inner = beside / "images"
        return self._images or (inner if self.format in OTHERS and inner.is_dir() else beside)

    def _annotated(self, image: AnnotatedImage) -> Item:
        if image.fault:
            return Item(name=self._path.name, faults=(("unreadable", image.fault),))
        return Item(
            captions=(*image.captions, *(text for _, text in image.further)),
            licence=image.licence, **self._place(image.path),
        )  # fmt: skip

    def _region_image(self, image: RegionImage) -> Item:
        said = [
            (number, start, end)
            for number, row in enumerate(image.rows.values())
            for start, end in (*row.get("sentences", ()), *row.get("phrases", ()))
        ]
        faults = _left_out(image.left_out)
        faults += [("unreadable", image.fault)] if image.fault else []
        of_texts = sum(code in ("span-words", "text-outside") for code, _ in faults)
        of_boxes = [code for code, _ in faults if code in ("box-empty", "box-outside")]
        form = FORMATS[self.format]
        labelled = isinstance(form, RegionFormat) and form.captions is False
        labelled |= not image.caption and any("label" in row for row in image.rows.values())
        return Item(
            where=image.where,
            captions=None if labelled else (image.caption,),
            spans=tuple(
                TextSpan(start=start, end=end)
                for start, end in sorted({(start, end) for _, start, end in said})
            ),
            boxes=tuple(as_box(box[:4]) for box in image.rows),
            pairs=tuple((number, image.caption[start:end]) for number, start, end in said),
            shares=image.shares,
            corners=form.corners if isinstance(form, RegionFormat) else "xyxy",
            stated=image.stated,
            faults=tuple(faults),
            looked_at=(("span-words", of_texts), *Counter(of_boxes).items()),
            licence=image.licence,
            **self._place(image.path),
        )

    def _place(self, path: Path) -> dict[str, Any]:
        """Name and reader of a picture that a published reader has placed below the folder."""
        below = "" if self._folder == Path() else f"{self._folder}/"
        name = str(path).removeprefix(below)
        return {"name": name, "picture": self._reader(name)}

    def _reader(self, name: str) -> Callable[[], bytes] | None:
        place = self._folder / name
        if leads_out(place, self._folder) or "\0" in name:
            return _absent
        return partial(self._read_picture, place)

    def _read_picture(self, place: Path) -> bytes:
        there = on_disk(place, self._folder)
        return self._files.read(inside(str(there.relative_to(self._folder))))

    def _of_captions(self) -> Iterator[Item]:
        rows = read_captions(self._path, str(self._folder))
        for name, group in _grouped(rows, self._path):
            captions = tuple(caption or "" for _, caption, _, _ in (group[0], *group[1:]))
            yield Item(
                name=name, where=f"row {group[0][2]}", captions=captions,
                picture=self._reader(name),
            )  # fmt: skip

    def _of_regions(self) -> Iterator[Item]:
        for name, group in _grouped(read_regions(self._path, str(self._folder)), self._path):
            kinds: dict[Any, list[XYXY]] = {}
            for _, region, _ in group:
                box, *kind = _of_region(each := json.loads(region))
                kinds.setdefault((*kind, stated_size(each)), []).append(box)
            for (shares, corners, stated), boxes in kinds.items():
                yield Item(
                    name=name,
                    where=f"row {group[0][2]}",
                    boxes=tuple(boxes),
                    shares=shares,
                    corners=corners,
                    stated=stated,
                    picture=self._reader(name),
                )

    def _of_images(self) -> Iterator[Item]:
        source = find_source(str(self._images or self._path))
        files = ImageFiles(source.root)
        for entry in entries(source):
            yield _of_entry(entry, files)


def _absent() -> bytes:
    """What leads out of the folder of pictures is none of them."""
    raise FileNotFoundError


def _of_entry(entry: Entry, files: ImageFiles) -> Item:
    """An image of a folder or shard, with the text beside it, if there is one."""
    if entry.size in REFUSED:
        return Item(name=entry.path, faults=(("unreadable", REFUSED[entry.size][1]),))
    captions = None
    for name in in_cases(f"{stem(entry.path)}.txt"):
        with contextlib.suppress(OSError, ValueError):
            captions = (files.read(name).decode("utf-8", "replace").strip(),)
            break
    return Item(
        name=entry.path, captions=captions, picture=partial(files.read, inside(entry.path))
    )  # fmt: skip


def _grouped(rows: Iterator[tuple], path: Path) -> Iterator[tuple[str, list[tuple]]]:
    """Rows by image, if they follow one another; of COCO's JSON, which is in memory anyway, all."""
    if path.suffix.lower() == ".json":
        rows = iter(sorted(rows, key=itemgetter(0)))
    first = next(rows, None)
    if first is not None:
        for name, group in groupby(chain([first], rows), key=itemgetter(0)):
            yield name, list(group)


def _of_region(region: dict[str, Any]) -> tuple[XYXY, bool, Literal["xyxy", "xywh", ""]]:
    """Box, whether it is in shares, and its corners as the file has them."""
    key = next(key for key in region if key.startswith("box_"))
    corners = "" if "cxcywh" in key else "xywh" if "xywh" in key else "xyxy"
    return box_corners(key, region[key]), key in SHARES, corners


def _is_read_whole(path: Path, form: str) -> bool:
    of_json = ("coco", "mdetr", "flickr30k", "regions", "captions")
    return path.is_file() and path.suffix == ".json" and form in of_json


def _left_out(said: Sequence[str]) -> list[tuple[str, str]]:
    """The faults of what a reader has left out; other units are one of the image."""
    faults: list[tuple[str, str]] = []
    for each in said:
        code = next((code for pattern, code in _LEFT_OUT if pattern.search(each)), "unreadable")
        if code != "box-units" or all(known != code for known, _ in faults):
            faults.append((code, each))
    return faults
