"""Shared parts of the readers: their record, places of image files, plain pickles."""

from __future__ import annotations

import functools
import io
import os
import pickle
import pickletools
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from glit.errors import InputError, cut
from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES, suffix_of
from glit.storage.members import spellings, spelt_on_disk

T = TypeVar("T")
U = TypeVar("U")
MALFORMED = (ValueError, OverflowError, KeyError, TypeError, IndexError, AttributeError)
"""Errors that reading a damaged record raises."""
_MOST_FILES = 10_000
ALL = "all"
"""The value of ``--split`` for every part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of an image that was published as an image of its own."""

    path: Path
    """The image file."""

    sentence: str
    """The sentence of the caption that describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedImage:
    """An image file and its captions."""

    path: Path
    """The image file; it need not exist."""

    captions: tuple[str, ...]
    """Stripped, none of them empty; there may be none."""

    segments: tuple[Segment, ...] = ()
    """The image's parts in a joint set; empty in other collections."""

    further: tuple[tuple[str, str], ...] = ()
    """Kinds and texts of captions that are published beside the long one and not measured."""

    growing: bool = False
    """True if the captions are the beginnings of one caption, shortest first."""

    licence: str = ""
    """As the file states it; empty if it does not."""

    published: str = ""
    """The path as the file has it, where ``path`` was found by a part of it."""

    fault: str = ""
    """Why the entry has no image or no caption; empty for a good one."""


def annotated(
    path: Path, captions: Iterable[str], segments: Iterable[Segment] = (), *, published: str = ""
) -> AnnotatedImage:
    """A record with the captions stripped, empty ones left out."""
    stripped = (caption.strip() for caption in captions)
    return AnnotatedImage(
        path=path,
        captions=tuple(caption for caption in stripped if caption),
        segments=tuple(segments),
        published=published,
    )


def told(error: Exception) -> str:
    """Describe what is wrong with a record, for people.

    >>> told(KeyError("bbox")), told(ValueError("a box of 3 numbers"))
    ("no 'bbox'", 'a box of 3 numbers')
    """
    if isinstance(error, KeyError):
        return f"no {error}"
    return str(error) or type(error).__name__


def good_entries(
    found: Iterable[T], read: Callable[[T], U], faults: list[AnnotatedImage]
) -> Iterator[U]:
    """Yield what the entries of a file say; one that is damaged becomes a fault.

    Args:
        found: the entries.
        read: reads one.
        faults: takes an image without a caption for each damaged one.
    """
    for number, each in enumerate(found, start=1):
        try:
            said = read(each)
        except MALFORMED as error:
            fault = f"entry {number}: {cut(told(error))}"
            faults.append(AnnotatedImage(path=Path(), captions=(), fault=fault))
        else:
            yield said


def a_text(value: Any) -> str:
    """The value, which has to be a text.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]} is no caption")
    return value


def licence_names(values: dict[str, Any]) -> dict[Any, str]:
    """Names of the licences that a file in COCO's layout lists, by their id."""
    found = values.get("licenses")
    listed = found if isinstance(found, list) else []
    known = [each for each in listed if isinstance(each, dict) and _is_key(each.get("id"))]
    return {each["id"]: str(each.get("name") or each.get("url") or each["id"]) for each in known}


def stated_licence(entry: dict[str, Any], licences: dict[Any, str]) -> str:
    """The licence of a picture that its entry states; empty for none.

    >>> stated_licence({"license": 4}, {4: "CC BY 2.0"})
    'CC BY 2.0'
    """
    licence = entry.get("license")
    if not _is_key(licence):
        return ""
    return licences.get(licence) or str(licence)


def _is_key(value: Any) -> bool:
    return isinstance(value, int | str)


def chosen_parts(split: str | None, known: Iterable[str], *, default: str = "test") -> set[str]:
    """The parts that ``split`` names, several joined by ``+``; ``all`` for every one.

    Raises InputError for a part that is not known: it would be left out of the gallery unseen.
    """
    known = list(known)
    if split == ALL:
        return set(known)
    parts = (split or default).split("+")
    for part in parts:
        if part not in known:
            raise InputError(f"--split {split!r}: no part {part!r}; known are {', '.join(known)}")
    return set(parts)


def no_parts(split: str | None) -> None:
    """Refuse ``--split`` for annotations without parts; ``all`` is allowed."""
    if split not in (None, ALL):
        raise InputError(f"--split {split!r}: these annotations have no parts; leave --split out")


def whole(
    read: Callable[[Path, Path], Iterator[T]],
) -> Callable[[Path, Path | None, str | None], Iterator[T]]:
    """A reader of annotations without parts, of one that takes them and the folder of pictures: the
    user's, else the one that the annotations are in."""

    @functools.wraps(read)
    def reader(annotations: Path, images: Path | None, split: str | None) -> Iterator[T]:
        no_parts(split)
        yield from read(annotations, images or annotations.parent)

    return reader


def check_place(path: Path, folder: Path) -> Path:
    """The path of a picture that annotations name, if it is below the folder of pictures.

    Links are the user's own and may lead anywhere.

    Raises:
        ValueError: it leads out, as ``../private/x.png`` does.
    """
    if fault := leads_out(path, folder):
        raise ValueError(fault)
    return path


def leads_out(path: Path, folder: Path) -> str:
    """Return the fault of a picture's path that leads out of the folder; else empty."""
    whole, below = os.path.abspath(path), os.path.join(os.path.abspath(folder), "")
    if whole.startswith(below):
        return ""
    return (
        f"{cut(str(path))}: leads out of {folder}; if it is meant, give --images the folder that "
        "holds all images"
    )


def check_exists(annotations: Path, form: str = "") -> None:
    """Refuse annotations that are not there, or not on this machine.

    Args:
        annotations: a file or folder.
        form: its format.

    Raises:
        InputError: see above.
    """
    if annotations.exists():
        return
    scheme, slash, rest = str(annotations).partition(":/")  # Path makes one slash of two
    if slash and scheme.isalnum():
        raise InputError(
            f"{scheme}://{rest.lstrip('/')}: an address; annotations are read from this machine "
            "alone, so copy them here first"
        )
    what = f"the {form} annotations" if form else "the annotations as published"
    raise InputError(f"{annotations}: no such file or folder; give {what}")


def check_regular(path: Path) -> None:
    """Refuse a pipe or a device, at which a reader would wait for ever, and folders with one.

    Raises:
        InputError: it is one, or one of the first ten thousand files of the folder is.
    """
    inside = islice(path.iterdir(), _MOST_FILES) if path.is_dir() else [path]
    for each in inside:
        try:
            mode = each.stat().st_mode
        except OSError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{each}: no regular file (a pipe, a socket or a device)")


def on_disk(path: Path, folder: Path) -> Path:
    """A picture's path as the disk spells it; see :func:`glit.storage.members.spelt_on_disk`."""
    if leads_out(path, folder):
        return path
    return folder / spelt_on_disk(folder, Path(os.path.relpath(path, folder)).as_posix())


def with_suffix(path: Path) -> Path:
    """The image file of a name that may lack its suffix."""
    if suffix_of(path.name) in IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES:
        return path
    names = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
    found = (
        n for n in names if os.path.splitext(n)[0] == path.name and suffix_of(n) in IMAGE_SUFFIXES
    )
    return path.with_name(next(found, f"{path.name}.jpg"))


def published_place(published: str, images: Path | None, *, least: int = 1) -> Path:
    """The longest tail of a published path, of ``least`` names or more, below the image folder;
    where none is there, of one of its :func:`glit.storage.members.spellings`.

    Raises:
        ValueError: the path has fewer names.
    """
    if images is None:
        return Path(published)
    places = [_tails(spelling, images, least) for spelling in spellings(published)]
    if not places[0]:
        raise ValueError(f"{published!r:.80} is no path of a picture")
    for path in (path for tails in places for path in tails):
        if path.is_file() or (path := on_disk(path, images)).is_file():
            return path
    return places[0][-1]


def _tails(published: str, images: Path, least: int) -> list[Path]:
    names = [name for name in PurePosixPath(published).parts if name not in ("/", ".", "..")]
    return [images.joinpath(*names[first:]) for first in range(len(names) - least + 1)]


class _Plain(pickle.Unpickler):
    """Reads lists, dictionaries, text and numbers; a pickle of anything else could run programs."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"it holds a {module}.{name}, which RefCOCO's files do not")


def plain_pickle(data: bytes) -> Any:
    """Return the content of a pickle, if it is lists, dictionaries, text and numbers; else a
    ValueError."""
    try:
        check_memo(data)
        found = _Plain(io.BytesIO(data), encoding="utf-8").load()
    except _NO_PICKLE as error:
        raise ValueError(f"no pickle ({cut(str(error) or type(error).__name__)})") from error
    _check_repeats(found, 1 << 20 | 64 * len(data))
    return found


_NO_PICKLE = (
    pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip


def check_memo(data: bytes) -> None:
    """Refuse lengths and places beyond the data: the unpickler would make room for them first."""
    for code, argument, _ in pickletools.genops(data):
        if "PUT" in code.name and not 0 <= int(argument or 0) <= len(data):
            raise ValueError(f"it remembers a value at place {argument} of {len(data)} bytes")


def _check_repeats(value: Any, most: int) -> None:
    """Refuse values that hold one another so often that nobody can go through them all."""
    waiting, seen = [value], 0
    while waiting:
        each = waiting.pop()
        seen += len(each) if isinstance(each, str | bytes) else 1
        if isinstance(each, dict):
            seen += len(each)
            waiting += [*each.keys(), *each.values()] if seen <= most else []
        elif isinstance(each, list | tuple | set | frozenset):
            seen += len(each)
            waiting += each if seen <= most else []
        if seen > most:
            raise ValueError("no pickle (it repeats its values too often)")
