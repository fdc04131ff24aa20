"""Lists of images that a dataset must not hold, and datasets compared with them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from glit.data.reference_list import Found, Reference, list_bytes
from glit.data.resemblance import Thumbnail, thumbnail
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import DatasetError, InputError
from glit.images import ImageError, decode
from glit.pipeline.source import entries, find_source
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.progress import StageProgress
from glit.shards import REFUSED
from glit.shards.files import MOST_BYTES, ImageFiles
from glit.stages.exclude import open_references
from glit.storage.store import Entry, Store

_BATCH = 256
_AHEAD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of the images of a list."""

    num_images: int
    unusable: dict[str, str]
    """Files that are no image glit decodes, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A sample of a dataset that is in a list."""

    sample_id: str
    source_path: str
    found: Found


def write_references(images: str, output: Path, progress: StageProgress) -> Written:
    """Write the list of some images.

    Args:
        images: what a build takes: a folder, a glob, a list, shards, at an address too.
        output: the file, replaced if it is there.
        progress: counts the images.

    Raises:
        InputError: there are no images, or none can be used.
    """
    source = find_source(images)
    store = ImageFiles(source.root)
    listed = sorted(entries(source), key=lambda entry: entry.path)
    progress.begin("images", total=len(listed), done=0, drops=False)
    good, unusable = [], {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        made = map_ahead(pool, lambda entry: _reference(entry, store), listed, most=_AHEAD)
        for entry, each in zip(listed, made, strict=True):
            progress.advance(1)
            if isinstance(each, str):
                unusable[entry.path] = each
            else:
                good.append(each)
    if not good:
        raise InputError(f"{images}: holds no image that can be used ({len(listed)} files found)")
    Store(output.parent).write(output.name, list_bytes(good))
    return Written(num_images=len(good), unusable=unusable)


def _reference(entry: Entry, store: Store) -> Reference | str:
    if entry.size in REFUSED:
        return REFUSED[entry.size][1]
    if entry.size > MOST_BYTES:
        return f"{entry.size} bytes, at most {MOST_BYTES} allowed"
    try:
        data = store.read(entry.path)
        pixels = decode(data)
    except (OSError, ImageError) as error:
        return str(error)
    digest = hashlib.sha256(data).hexdigest()
    return Reference(name=entry.path, sha256=digest, thumbnail=thumbnail(pixels))


def find_overlaps(dataset: Dataset, path: str, progress: StageProgress) -> Iterator[Overlap]:
    """The samples of a finished dataset that a list holds, in order.

    Args:
        dataset: whose images are compared.
        path: a file that :func:`write_references` wrote.
        progress: counts the images.

    Raises:
        InputError: there is no such list.
        DatasetError: an image of the dataset cannot be read.
    """
    references = open_references(path)
    progress.begin("images", total=len(dataset), done=0, drops=False)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for rows in batched(dataset.rows(), _BATCH):
            thumbnails = list(pool.map(_thumbnail, rows))
            found = references.find([row.sample_id for row in rows], thumbnails)
            for row, other in zip(rows, found, strict=True):
                if other is not None:
                    yield Overlap(sample_id=row.sample_id, source_path=row.source_path, found=other)
            progress.advance(len(rows))


def _thumbnail(row: Row) -> Thumbnail:
    try:
        return thumbnail(row.pixels())
    except ImageError as error:
        raise DatasetError(f"{row.source_path}: {error}; run 'glit verify'") from error
