"""Lists of images that a dataset must not hold, and datasets compared with them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from glit.stages.image_model import ImageModel
from glit.storage.store import Entry, Store

if TYPE_CHECKING:
    from torch import Tensor

_BATCH = 64
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


def write_references(
    images: str, output: Path, progress: StageProgress, *, model: str = ""
) -> Written:
    """Write the list of some images.

    Args:
        images: what a build takes: a folder, a glob, a list, shards, at an address too.
        output: the file, replaced if it is there.
        progress: counts the images.
        model: whose embeddings of the images the list holds too: a name, a folder, a run or a
            hub id; empty for none.

    Raises:
        InputError: there are no images, or none can be used.
        WeightsError: there is no such model.
        RunError: an embedding is not finite.
    """
    source = find_source(images)
    opened = ImageModel(model, needed_for="--model") if model else None
    store = ImageFiles(source.root)
    listed = sorted(entries(source), key=lambda entry: entry.path)
    progress.begin("images", total=len(listed), done=0, drops=False)
    good, unusable = [], {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        made = map_ahead(pool, lambda entry: _reference(entry, store, opened), listed, most=_AHEAD)
        for some in batched(zip(listed, made, strict=True), _BATCH):
            unusable |= {entry.path: each for entry, each in some if isinstance(each, str)}
            good += _embedded([each for _, each in some if not isinstance(each, str)], opened)
            progress.advance(len(some))
    if not good:
        raise InputError(f"{images}: holds no image that can be used ({len(listed)} files found)")
    sha256 = "" if opened is None else opened.sha256
    name = Path(model).name if Path(model).is_dir() else model
    Store(output.parent).write(output.name, list_bytes(good, model=name, sha256=sha256))
    return Written(num_images=len(good), unusable=unusable)


def _embedded(
    made: list[tuple[Reference, Tensor | None]], model: ImageModel | None
) -> list[Reference]:
    if model is None:
        return [reference for reference, _ in made]
    vectors = model.embed([square for _, square in made if square is not None])
    return [
        replace(reference, embedding=vector)
        for (reference, _), vector in zip(made, vectors, strict=True)
    ]


def _reference(
    entry: Entry, store: Store, model: ImageModel | None
) -> tuple[Reference, Tensor | None] | str:
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
    made = Reference(name=entry.path, sha256=digest, thumbnail=thumbnail(pixels))
    return made, None if model is None else model.square(pixels)


def find_overlaps(
    dataset: Dataset, path: str, progress: StageProgress, *, model: str, cosine: float
) -> Iterator[Overlap]:
    """The samples of a finished dataset that a list holds, in order.

    Args:
        dataset: whose images are compared.
        path: a file that :func:`write_references` wrote.
        progress: counts the images.
        model: the list's, whose embeddings are compared too; empty compares none.
        cosine: from which two embeddings mean the same.

    Raises:
        InputError: there is no such list, or it has no embeddings of this model.
        DatasetError: an image of the dataset cannot be read.
    """
    references = open_references(path)
    opened = ImageModel(model, needed_for="--model") if model else None
    if opened is not None:
        references.check_model(model, opened.sha256)
    progress.begin("images", total=len(dataset), done=0, drops=False)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for rows in batched(dataset.rows(), _BATCH):
            seen = list(pool.map(lambda row: _thumbnail(row, opened), rows))
            squares = [square for _, square in seen if square is not None]
            found = references.find(
                [row.sample_id for row in rows], [small for small, _ in seen],
                embeddings=None if opened is None else opened.embed(squares), cosine=cosine,
            )  # fmt: skip
            for row, other in zip(rows, found, strict=True):
                if other is not None:
                    yield Overlap(sample_id=row.sample_id, source_path=row.source_path, found=other)
            progress.advance(len(rows))


def _thumbnail(row: Row, model: ImageModel | None) -> tuple[Thumbnail, Tensor | None]:
    try:
        pixels = row.pixels()
    except ImageError as error:
        raise DatasetError(f"{row.source_path}: {error}; run 'glit verify'") from error
    return thumbnail(pixels), None if model is None else model.square(pixels)
