"""List the files that go in, streamed and unsorted: a folder, address, glob, list file, shards."""

from __future__ import annotations

import fnmatch
import glob
import io
import json
import os
import posixpath
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from glit.errors import InputError, cut
from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES, suffix_of, tells_nothing
from glit.inputs.csv_rows import csv_rows, lower_case_note
from glit.inputs.files import ImageFiles
from glit.runtime.prefetch import map_ahead
from glit.storage.members import (
    MARK,
    SUFFIXES,
    hidden_part,
    in_cases,
    is_shard,
    sidecar_roles,
    spelt_on_disk,
    stem,
)
from glit.storage.store import Entry, Store

_LIST_SUFFIXES = (".txt", ".csv", ".jsonl")
_PACKED_TARS = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
_GLOB_CHARACTERS = frozenset("*?[")
_MOST_NAMED = 3
"""Folders that a note on hidden ones names."""
_SHARDS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The place that images come from: a root, and which files below it."""

    root: str
    """Folder or address; every path is relative to it."""
    pattern: str = ""
    """A glob relative to the root; empty takes every image file, or else every shard."""
    list_file: str = ""
    """A file that names the images or shards; empty looks at the folder."""


def find_source(images: str) -> Source:
    """The source a user's IMAGES argument means.

    Raises:
        InputError: no such folder or file, or a kind of file that is no list.
    """
    if "://" in images:
        return _at_address(images)
    if os.path.isdir(images):
        return Source(root=os.path.abspath(images))
    if os.path.isfile(images):
        return _one_file(images)
    if _GLOB_CHARACTERS & set(images):
        root, pattern = _cut_glob(images)
        if os.path.isdir(root or "."):
            return Source(root=os.path.abspath(root or "."), pattern=pattern)
    raise InputError(
        f"{images}: no such folder; want a folder of images, a glob, a list file, or shards "
        f"({', '.join(SUFFIXES)})"
    )


def _cut_glob(images: str) -> tuple[str, str]:
    """Return the part of a path before the first part with a pattern, and the rest."""
    parts = images.split("/")
    first = next(i for i, part in enumerate(parts) if _GLOB_CHARACTERS & set(part))
    root = "/".join(parts[:first])
    return root or ("/" if first else ""), "/".join(parts[first:])


def _at_address(images: str) -> Source:
    kind, _, path = images.rstrip("/").partition("://")
    folder, _, name = path.rpartition("/")
    if _GLOB_CHARACTERS & set(path):
        root, pattern = _cut_glob(path)
        return Source(root=f"{kind}://{root}", pattern=pattern)
    _refuse_packed(images, name)
    if folder and is_shard(name):
        return Source(root=f"{kind}://{folder}", pattern=name)
    if folder and name.lower().endswith(_LIST_SUFFIXES):
        return Source(root=f"{kind}://{folder}", list_file=images)
    return Source(root=f"{kind}://{path}")


def _one_file(images: str) -> Source:
    path = os.path.abspath(images)
    _refuse_packed(images, path)
    if is_shard(path):
        return Source(root=os.path.dirname(path), pattern=glob.escape(os.path.basename(path)))
    if not path.lower().endswith(_LIST_SUFFIXES):
        raise InputError(
            f"{images}: found a single file, want a folder, a glob, a list "
            f"({', '.join(_LIST_SUFFIXES)}) or a shard ({', '.join(SUFFIXES)})"
        )
    first = next(_names_in_list(path), (0, ""))[1]
    root = "/" if os.path.isabs(first) else os.path.dirname(path)
    return Source(root=root, list_file=path)


def _refuse_packed(images: str, name: str) -> None:
    if name.lower().endswith(_PACKED_TARS):
        raise InputError(
            f"{images}: a compressed archive, whose members cannot be read one by one; want a "
            "plain .tar"
        )


def refuse_images_folder(output: str, root: str) -> None:
    """Refuse to write a dataset among its images.

    Raises:
        InputError: the output is the folder of the images, by whatever path.
    """
    try:
        is_same = output == root or os.path.samefile(output, root)
    except OSError:  # an address, or not there yet
        is_same = False
    if is_same:
        raise InputError(
            f"-o {output}: is the folder of the images, where data/, work/ and README.md would lie "
            "among them; choose another output folder, which may be one in it"
        )


def entries(
    source: Source,
    *,
    sidecars: Sequence[str] = (),
    work: Store | None = None,
    hidden: Counter[str] | None = None,
) -> Iterator[Entry]:
    """The input files, unsorted, as one listing gives them.

    A folder gives its image files, by suffix and, where a name leaves open what a file is, by first
    bytes, also those that ingest drops as ``unsupported_format``; if it has none that glit decodes,
    the images in its shards, of a dataset of glit's those in its data files. A glob or a list gives
    exactly what it names, and of shards the images in them. Hidden and system folders are passed
    over in folders and shards, unless a glob or a list names them.

    Args:
        source: what to list.
        sidecars: suffixes of files beside the images that are wanted: ``NAME`` with the first of
            them has role 1, and so on.
        work: the work folder of the build, where the indexes of tars are kept; None keeps none.
            What it and the dataset's ``data`` hold is no input, should they lie below the root.
        hidden: counts by folder what is passed over; without, a warning says how many.
    """
    if hidden is None:
        hidden = Counter()
        yield from entries(source, sidecars=sidecars, work=work, hidden=hidden)
        if hidden:
            warnings.warn(hidden_note(hidden), stacklevel=2)
        return
    files = ImageFiles(source.root, index="" if work is None else work.root)
    own = () if work is None else _own_folders(files, work)
    found_images = False
    shards: list[Entry] = []
    for entry in _found(source, files, sidecars, hidden):
        if entry.path.startswith(own):
            continue
        if is_shard(entry.path):
            if not found_images or source.pattern or source.list_file:
                shards.append(entry)
            continue
        found_images = found_images or (entry.role == 0 and suffix_of(entry.path) in IMAGE_SUFFIXES)
        yield entry
    is_named = bool(source.pattern or source.list_file)
    if not shards or (found_images and not is_named):
        return
    if not is_named and _is_dataset(files, shards):
        shards = [each for each in shards if each.path.startswith("data/")]
    with ThreadPoolExecutor(_SHARDS_AT_ONCE, thread_name_prefix="shards") as pool:
        for members in map_ahead(
            pool, lambda each: list(files.members(each, beside=sidecars)), shards,
            most=2 * _SHARDS_AT_ONCE,
        ):  # fmt: skip
            yield from (each for each in members if not _passed_over(each, "", hidden))


def _is_dataset(files: Store, shards: Sequence[Entry]) -> bool:
    """Return whether shards are of a dataset of glit's and some of them no data files."""
    if len({each.path.startswith("data/") for each in shards}) == 1:
        return False
    try:
        manifest = json.loads(files.read("manifest.json"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == "glit"


def hidden_note(hidden: Mapping[str, int]) -> str:
    """Say how many images in which hidden and system folders are passed over."""
    some = ", ".join(f"{name} {number}" for name, number in sorted(hidden.items())[:_MOST_NAMED])
    more = ", …" if len(hidden) > _MOST_NAMED else ""
    return (
        f"{sum(hidden.values())} images in hidden or system folders are passed over "
        f"({some}{more}); a list of files takes what it names"
    )


def has_at_most(source: Source, most: int) -> bool:
    """True if a source has at most ``most`` image files; False for a source of shards.

    It lists no more than it needs, and opens no shard.
    """
    shards = number = 0
    for entry in _found(source, ImageFiles(source.root), (), Counter()):
        shards += is_shard(entry.path)
        number += not is_shard(entry.path)
        if number > most or (shards and (source.pattern or source.list_file)):
            return False
    return number > 0 or not shards


def _own_folders(files: Store, work: Store) -> tuple[str, ...]:
    """Return the folders below the images in which a dataset keeps its own files."""
    root, own = files.full(""), work.full("")
    if files.is_local != work.is_local:
        return ()
    if files.is_local:
        root, own = os.path.realpath(root), os.path.realpath(own)
    dataset = own.rpartition("/")[0]
    if f"{dataset}/".startswith(below := f"{root.rstrip('/')}/"):
        inside = f"{dataset}/".removeprefix(below)
        return (f"{inside}data/", f"{inside}work/")
    return ()


def _found(
    source: Source, files: ImageFiles, sidecars: Sequence[str], hidden: Counter[str]
) -> Iterator[Entry]:
    """Images, shards, and files beside images."""
    if source.list_file:
        yield from _listed(source, files, sidecars)
        return
    roles = sidecar_roles(sidecars)
    for entry in files.walk():
        if _wanted(entry, source.pattern):
            if not _passed_over(entry, source.pattern, hidden):
                yield entry
        elif hidden_part(entry.path):
            continue
        elif role := roles.get(suffix_of(entry.path)):
            yield entry._replace(role=role)
        elif not source.pattern and tells_nothing(entry.path) and files.is_picture(entry):
            yield entry


def _passed_over(entry: Entry, pattern: str, hidden: Counter[str]) -> bool:
    """Return whether a file is in a hidden or a system folder that no pattern names; count it."""
    path = entry.path.partition(MARK)[2] or entry.path
    part = hidden_part(path)
    if not part or part in pattern.split("/"):
        return False
    hidden[part] += entry.role == 0
    return True


def _wanted(entry: Entry, pattern: str) -> bool:
    if pattern:
        return _glob_match(entry.path.split("/"), pattern.split("/"))
    if entry.path.endswith("/"):
        return True  # a folder that cannot be opened is reported, not passed over
    suffix = suffix_of(entry.path)
    return suffix in IMAGE_SUFFIXES or suffix in OTHER_IMAGE_SUFFIXES or is_shard(entry.path)


def _glob_match(path: list[str], pattern: list[str]) -> bool:
    """Shell globbing by path parts; ``**`` stands for any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_glob_match(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return (
        bool(path)
        and fnmatch.fnmatchcase(path[0], pattern[0])
        and _glob_match(path[1:], pattern[1:])
    )


def _listed(source: Source, files: Store, sidecars: Sequence[str]) -> Iterator[Entry]:
    for path in _once(_paths_in_list(source), lambda: _paths_in_list(source)):
        yield files.entry(path)
        for suffix, role in sidecar_roles(sidecars).items():
            besides = map(files.entry, in_cases(stem(path) + suffix))
            if beside := next((each for each in besides if each.size >= 0), None):
                yield beside._replace(role=role)


def _paths_in_list(source: Source) -> Iterator[str]:
    for number, name in _names_in_list(source.list_file):
        path = _relative(name, source, number)
        is_local = "://" not in source.root
        yield spelt_on_disk(source.root, path) if is_local else path


def _once(paths: Iterator[str], again: Callable[[], Iterator[str]]) -> Iterator[str]:
    """Yield each path the first time it comes; while they come sorted, none is remembered.

    Args:
        paths: in any order.
        again: gives them from the start.
    """
    last, number = "", 0
    for path in paths:
        if path <= last:
            break
        last, number = path, number + 1
        yield path
    else:
        return
    seen = set(islice(again(), number))
    for each in chain([path], paths):
        if each not in seen:
            seen.add(each)
            yield each


def _relative(name: str, source: Source, number: int) -> str:
    """A name of a list as a path below the source's root."""
    if "://" in name:
        if not name.startswith(f"{source.root}/"):
            raise _outside(source, number, name, "where they are")
        name = name.removeprefix(f"{source.root}/")
    path = name if _is_plain(name) else _tidy(name, source.root)
    if path.startswith("../"):
        raise _outside(source, number, name, "or use absolute paths throughout")
    return path


def _outside(source: Source, number: int, name: str, advice: str) -> InputError:
    return InputError(
        f"{source.list_file}: line {number} names {name!r}, outside the list's folder; put the "
        f"list above the images, {advice}"
    )


def _is_plain(name: str) -> bool:
    """Return whether a name is relative and already in its shortest form, told quickly."""
    return not (name.startswith("/") or "//" in name or "./" in name or "\\" in name)


def _tidy(name: str, root: str) -> str:
    path = os.path.relpath(name, root) if name.startswith("/") else name
    return posixpath.normpath(path.replace(os.sep, "/"))


def _names_in_list(file: str) -> Iterator[tuple[int, str]]:
    folder, _, name = file.rpartition("/")
    try:
        data = Store(folder or "/").read(name)
        is_csv = file.lower().endswith(".csv")
        # line ends as old Macs wrote them; a name may hold one where other line ends are there
        newline = "" if is_csv else "\n" if b"\n" in data else "\r"
        yield from _names_in(file, io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=newline))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error})") from error


def _names_in(file: str, lines: io.TextIOWrapper) -> Iterator[tuple[int, str]]:
    if file.lower().endswith(".csv"):
        for number, row in csv_rows(lines, file, is_known={"path"}.__contains__):
            if "path" not in row:
                raise InputError(
                    f"{file}: found the columns {cut(', '.join(row))}, want one named 'path'"
                    f"{lower_case_note(row, ['path'])}"
                )
            if row["path"]:
                yield number, row["path"]
        return
    is_json = file.lower().endswith(".jsonl")
    for number, line in enumerate(lines, start=1):
        if stripped := line.strip():
            if "\0" in stripped:
                raise InputError(f"{file}: line {number} holds a NUL byte; write it anew in UTF-8")
            yield number, _json_path(file, number, line) if is_json else stripped


def _json_path(file: str, number: int, line: str) -> str:
    try:
        return str(json.loads(line)["path"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f'{file}: line {number}: want a JSON object with a "path" ({cut(repr(error))})'
        ) from error
