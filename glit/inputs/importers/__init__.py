"""Convert published captions to a file for ``glit build --captions``, and boxes for ``--regions``.

A line of the file has ``path``, from the file's own folder, and ``caption``. Where images have
several captions, each has a line with its ``kind``: those of equal rank are numbered, and the first
becomes the dataset's ``caption``. What is published with boxes has one caption an image, to which
they belong, and gets a second file, with a line for each of them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from glit.data.captions import LONG
from glit.data.frames import Frame, checked_size
from glit.data.json_files import not_utf8
from glit.errors import InputError, closest, cut
from glit.inputs.importers.claims import Claims, is_claim
from glit.inputs.importers.named_files import NamedFiles
from glit.inputs.published import FORMATS, RegionFormat, imported
from glit.inputs.published.corners import CornerCount, UnitCount
from glit.inputs.published.files import (
    AnnotatedImage,
    check_exists,
    check_regular,
    leads_out,
    on_disk,
)
from glit.inputs.published.region_image import RegionImage, cut_box, frame_of, moved_box
from glit.runtime.progress import StageProgress, null_progress
from glit.storage.store import Store

_NOT_OF_FORMAT = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, SyntaxError, OverflowError,
)  # fmt: skip
"""Errors that reading other files than those of a format raises."""
_MOST_LISTED = 1000
_TOLD_EVERY = 100_000
"""Images after which the number of them is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    captions: int
    """Images whose captions were written."""
    without: int
    """Images that have no caption; of a format with boxes, or none of these."""
    missing: tuple[str, ...]
    """The first thousand image files that are not there; their captions were not written."""
    num_missing: int = 0
    """How many image files are not there, also beyond the first thousand."""
    regions: int | None = None
    """Boxes that were written; None of a format without."""
    masks: int = 0
    """Boxes of these that have a mask."""
    boxed: int = 0
    """Images whose boxes were written."""
    cut: int = 0
    """Boxes that left their image and were cut at its edge."""
    empty: int = 0
    """Boxes that were left out, as nothing of them is inside their image."""
    repeated: int = 0
    """Boxes that were left out, as another one of their image is the same once cut."""
    scaled: int = 0
    """Images whose boxes were scaled, as the file states a picture of another size."""
    turned: int = 0
    """Images whose boxes were turned with the picture's EXIF orientation."""
    refused: tuple[str, ...] = ()
    """The first thousand images and regions that cannot be right, each with its place and what is
    wrong; they were not written."""
    num_refused: int = 0
    """All that cannot be right."""
    kinds: tuple[str, ...] = ()
    """Kinds of the captions, where images have several; the first becomes the dataset's
    ``caption``."""
    phrases: bool = False
    """True if boxes have phrases."""
    folder: str = ""
    """The folder that holds all their images, for formats with boxes."""
    elsewhere: int = 0
    """Images that were found by their names, not where the annotations say."""


def regions_file(output: Path) -> Path:
    """The file of boxes beside one of captions.

    >>> regions_file(Path("grit.jsonl")).name
    'grit.regions.jsonl'
    """
    return output.with_suffix(".regions.jsonl")


def import_captions(
    name: str,
    annotations: Path,
    output: Path,
    *,
    images: Path | None,
    split: str | None = None,
    attach: bool = False,
    progress: StageProgress | None = None,
) -> Imported:
    """Write the captions of published annotations, and their boxes beside them.

    Args:
        name: one of :func:`imported`.
        annotations: file or folder as published.
        output: a ``.jsonl`` file; one that exists is replaced.
        images: folder with the images; where the format has its own folder, that is the default.
        split: which parts, several joined by ``+``; None for all.
        attach: look for images that are not where the annotations say by their names, anywhere
            below the folder; see :class:`glit.inputs.importers.named_files.NamedFiles`.
        progress: shows images done; all annotations of captions alone are in memory by then.

    Raises:
        InputError: no such format, the files are not of it, or no image of them is there.
    """
    if name not in imported():
        raise InputError(f"--format {name}: no such format; {closest(name, imported())}")
    if output.suffix != ".jsonl":
        raise InputError(f"-o {output}: want a name that ends in .jsonl")
    check_exists(annotations, name)
    check_regular(annotations)
    told = progress or null_progress()
    form = FORMATS[name]
    pictures = _Pictures(form.picture_folder(annotations, images), attach=attach)
    try:
        if isinstance(form, RegionFormat):
            return _write_regions(form, output, annotations, told, pictures, images, split or "all")
        found = list(form.read(annotations, images, split or "all"))
        if found and all(image.fault for image in found):
            raise ValueError(found[0].fault)
        told.begin("images", total=len(found), done=0, drops=False)
        return _write_captions(found, output, annotations, told, pictures)
    except (IsADirectoryError, NotADirectoryError) as error:
        kind, wanted = ("folder", "file") if annotations.is_dir() else ("file", "folder")
        raise InputError(
            f"{annotations}: a {kind}; {name} annotations are published as a {wanted}, "
            f"see {form.page} for its name"
        ) from error
    except OSError as error:
        raise InputError(f"{annotations} to {output}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{annotations}: {not_utf8(error)}") from error
    except _NOT_OF_FORMAT as error:
        told = "" if isinstance(form, RegionFormat) else f"{type(error).__name__}: "
        raise InputError(
            f"{annotations}: not the {name} annotations as published "
            f"({told}{cut(str(error))}); see {form.page} for the layout"
        ) from error


class _Listed:
    """Texts of which the first thousand are kept, and all counted."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.total = 0

    def add(self, *texts: str) -> None:
        self.first += texts[: max(0, _MOST_LISTED - len(self.first))]
        self.total += len(texts)


class _Pictures:
    """The picture files that annotations name.

    Args:
        folder: that they are below.
        attach: whether those that are not where they should be are looked for by name.
    """

    def __init__(self, folder: Path, *, attach: bool) -> None:
        self._folder = folder
        self._named = NamedFiles(folder) if attach else None
        self.elsewhere = 0

    def find(self, path: Path, *, sized: bool = False, counted: bool = True) -> tuple[Path, str]:
        """Return a picture's file, and what is wrong with its name; the file need not exist.

        Args:
            path: as the annotations name it.
            sized: whether they state the picture's size.
            counted: whether one that is elsewhere is counted.
        """
        fault = leads_out(path, self._folder)
        here = path if fault else on_disk(path, self._folder)
        if self._named is None or (not fault and here.is_file()):
            return here, fault
        found = self._named.find(path, sized=sized)
        if found is None:
            return here, fault
        self.elsewhere += counted
        return found, ""


def _write_captions(
    found: list[AnnotatedImage],
    output: Path,
    annotations: Path,
    told: StageProgress,
    pictures: _Pictures,
) -> Imported:
    written = without = 0
    missing, refused, claims = _Listed(), _Listed(), Claims()
    several = any(len(image.captions) > 1 or image.further for image in found)
    has_long = any(image.growing or image.further for image in found)
    kinds: dict[str, None] = {}
    lines = 0
    with _new_file(output) as file:
        for number, image in enumerate(found, start=1):
            path, fault = pictures.find(image.path) if image.captions else (image.path, "")
            if image.fault:
                refused.add(image.fault)
            elif not image.captions:
                without += 1
            elif fault:
                refused.add(fault)
            elif not path.is_file():
                missing.add(str(image.path))
            else:
                published = image.published or str(image.path)
                at = f"entry {number}, {published}"
                reason, other = claims.take(path, published, at, several=True)
                refused.add(*filter(None, [reason and f"{at}: {reason}", other]))
                if not reason:
                    start = lines
                    for kind, caption in _by_kind(image, has_long=has_long):
                        told_kind = {"kind": kind} if several else {}
                        file.write(_line(_place(path, output), caption=caption, **told_kind))
                        kinds[kind] = None
                        lines += 1
                    claims.written(path, range(start, lines), range(0))
                    written += 1
            told.advance(1)
        if written <= claims.given_up:
            raise InputError(_nothing(annotations, missing, refused))
    _without_lines(output, claims.texts)
    return Imported(
        captions=written - claims.given_up, without=without, missing=tuple(missing.first),
        num_missing=missing.total, kinds=tuple(kinds) if several else (),
        refused=tuple(refused.first), num_refused=refused.total, elsewhere=pictures.elsewhere,
    )  # fmt: skip


def _by_kind(image: AnnotatedImage, *, has_long: bool) -> Iterator[tuple[str, str]]:
    """Kinds and captions of an image. Several of equal rank are numbered, as calling one of them
    long would be wrong; of beginnings of one caption the whole one comes first."""
    *before, last = image.captions
    if has_long:
        yield LONG, last
        yield from ((f"first-{number}", each) for number, each in enumerate(before, start=1))
    else:
        numbered = enumerate(image.captions, start=1)
        yield from ((f"caption-{number}", each) for number, each in numbered)
    yield from image.further


def _write_regions(
    form: RegionFormat,
    output: Path,
    annotations: Path,
    told: StageProgress,
    pictures: _Pictures,
    images: Path | None,
    split: str,
) -> Imported:
    """Write images as they are read: FineHARD has twelve million."""
    captions = form.captions
    counts, units = Counter[str](), _Units(form)
    phrases, folder = False, None
    missing, refused, whole, claims = _Listed(), _Listed(), _Listed(), Claims()
    with contextlib.ExitStack() as files:
        texts, boxes = None, files.enter_context(_new_file(regions_file(output)))
        for number, image in enumerate(_placed(form.read(annotations, images, split)), start=1):
            if number % _TOLD_EVERY == 0:
                told.note(f"{number:,} images read")
            at = f"{image.where}, {image.path.name}"
            refused.add(*(f"{at}: {cut(each)}" for each in image.left_out))
            if not image.fault and (not image.rows or (captions and not image.caption)):
                counts["without"] += 1
                refused.add(*_claim_of_nothing(image, pictures, claims))
                continue
            frame, fault = _framed(image, pictures, at)
            if not fault and not _is_there(image):
                missing.add(str(image.path))
                continue
            if not fault and is_claim(image):
                fault, other = claims.take_of(image, at)
                refused.add(*filter(None, [other]))
            if fault:
                whole.add(fault)
                refused.add(fault)
                continue
            before = counts["captions"], counts["regions"]
            if image.caption and captions is not False:
                texts = texts or files.enter_context(_new_file(output))
                counts["captions"] += 1
                texts.write(_line(_place(image.path, output), caption=image.caption))
            counts["written"] += 1
            counts[frame.change if frame else ""] += 1
            own = os.path.dirname(image.path) or "."
            folder = own if folder is None else os.path.commonpath([folder, own]) or "."
            phrases |= any("phrases" in row for row in image.rows.values())
            _write_boxes(image, frame, output, boxes, counts)
            if is_claim(image):
                texts_of = range(before[0], counts["captions"])
                claims.written(image.path, texts_of, range(before[1], counts["regions"]))
            units.add(image, frame)
        units.check()
        if counts["written"] <= claims.given_up:
            why = whole if whole.total else refused
            raise InputError(_nothing(annotations, missing, why, boxes=captions is not True))
    _without_lines(regions_file(output), claims.boxes)
    _without_lines(output, claims.texts)
    return Imported(
        captions=counts["captions"] - sum(map(len, claims.texts)),
        boxed=counts["written"] - claims.given_up,
        masks=counts["masks"], without=counts["without"], missing=tuple(missing.first),
        num_missing=missing.total, num_refused=refused.total,
        regions=counts["regions"] - sum(map(len, claims.boxes)),
        cut=counts["cut"], empty=counts["empty"], repeated=counts["repeated"],
        scaled=counts["scaled"], turned=counts["turned"], refused=tuple(refused.first),
        phrases=phrases,
        folder=folder or "", elsewhere=pictures.elsewhere,
    )  # fmt: skip


class _Units:
    """The units of all boxes of a file: pixels or shares, a corner and a size or two corners.

    Args:
        form: of the file.
    """

    def __init__(self, form: RegionFormat) -> None:
        self._form = form
        self._corners, self._units = CornerCount(), UnitCount()

    def add(self, image: RegionImage, frame: Frame | None) -> None:
        """Add the boxes of an image, as the file has them."""
        given = [numbers[:4] for numbers in image.rows]
        is_xywh = self._form.corners == "xywh"
        if image.shares:
            self._units.add_shares(given)
        elif frame is not None:
            self._corners.add(given if is_xywh else (), frame.stated)
            self._units.add(given, frame.stated, xywh=is_xywh)

    def check(self) -> None:
        """Refuse a file whose boxes are not what its format has.

        Raises:
            ValueError: they are not.
        """
        if fault := self._corners.fault:
            hint = "; if they are two corners, use --format hf-xyxy" * self._form.assumed
            raise ValueError(f"{fault}{hint}")
        if fault := self._units.fault:
            raise ValueError(fault)


def _framed(image: RegionImage, pictures: _Pictures, at: str) -> tuple[Frame | None, str]:
    """Find an image's picture: how its boxes move to it, and why it cannot be written."""
    if image.fault:
        return None, f"{at}: {cut(image.fault)}"
    image.path, reason = pictures.find(image.path, sized=image.stated is not None)
    if reason:
        return None, f"{image.where}: {reason}"
    frame, reason = frame_of(image)
    return frame, f"{at}: {cut(reason)}" if reason else ""


def _claim_of_nothing(image: RegionImage, pictures: _Pictures, claims: Claims) -> Iterator[str]:
    """Claim the picture of an entry without captions or boxes, so that an entry of another folder
    does not get it. Yields why the lines of one that had it are removed."""
    if not image.published:
        return
    path, fault = pictures.find(image.path, counted=False)
    if not fault and path.is_file():
        _, other = claims.take(path, image.published, image.where, several=True, has_rows=False)
        yield from filter(None, [other])


def _is_there(image: RegionImage) -> bool:
    """Return whether the picture's file is there, or the annotations hold the picture."""
    if image.picture is None:
        return image.path.is_file()
    try:
        image.picture()
    except FileNotFoundError:
        return False
    except OSError:  # damaged, which a build says
        pass
    return True


def _without_lines(file: Path, cuts: list[range]) -> None:
    """Write a file anew without some of its lines."""
    left = {number for each in cuts for number in each}
    if left:
        with file.open(encoding="utf-8") as lines, _new_file(file) as target:
            target.writelines(line for number, line in enumerate(lines) if number not in left)


def _placed(found: Iterable[RegionImage]) -> Iterator[RegionImage]:
    """The same, with the place of an entry that is none of its format in the error."""
    where = ""
    try:
        for image in found:
            where = image.where
            yield image
    except UnicodeDecodeError:
        raise
    except _NOT_OF_FORMAT as error:
        told = f"after {where}: " if where else ""
        raise ValueError(f"{told}{type(error).__name__}: {error}") from error


def _write_boxes(
    image: RegionImage, frame: Frame | None, output: Path, file: IO[str], counts: Counter[str]
) -> None:
    """Write the boxes of an image, moved to its file and cut at its edge."""
    key = "box_xyxyn" if image.shares else "box_xyxy"
    unknown = (math.inf, math.inf) if image.stated is None else checked_size(image.stated)
    size = (1.0, 1.0) if image.shares else frame.size if frame else unknown
    seen: set[tuple[Any, ...]] = set()
    place = _place(image.path, output)
    for given, row in image.rows.items():
        box = moved_box(given[:4], frame, shares=image.shares)
        inside = cut_box(box, size)
        if inside is None:
            counts["empty"] += 1
            continue
        if (*inside, *given[4:]) in seen:
            counts["repeated"] += 1
            continue
        seen.add((*inside, *given[4:]))
        counts["cut"] += inside != box
        counts["masks"] += "mask" in row
        if "mask" in row and frame is not None:  # whose size is that of the stated picture
            row = {**row, **dict(zip(("width", "height"), frame.size, strict=True))}
        file.write(_line(place, **{key: inside}, **row))
        counts["regions"] += 1


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """A file that appears when it is whole."""
    with Store(path.parent).atomic(path.name) as beside, beside.open("w", encoding="utf-8") as file:
        yield file


def _place(path: Path, output: Path) -> str:
    """A picture's path from the folder of a file; links in it stay, if it leads there."""
    found = os.path.relpath(path, output.parent)
    if os.path.exists(os.path.join(output.parent, found)):
        return found
    return os.path.relpath(path.resolve(), output.resolve().parent)


def _line(place: str, **values: Any) -> str:
    return json.dumps({"path": place, **values}, ensure_ascii=False) + "\n"


def _nothing(annotations: Path, missing: _Listed, refused: _Listed, *, boxes: bool = False) -> str:
    what = "image" if boxes else "captioned image"
    if refused.total:
        return f"{annotations}: none of {refused.total} entries can be right; {refused.first[0]}"
    if missing.total:
        return (
            f"{annotations}: none of {missing.total} {what}s is there (first: "
            f"{missing.first[0]}); give their folder with --images"
        )
    return f"{annotations}: no {what}{' with a box' * boxes}; check --split and --format"
