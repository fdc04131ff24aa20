"""Lists of images that a dataset must not hold, and datasets compared with them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from glit.data.reference_list import (
    NO_THUMBNAIL,
    Reference,
    ReferenceList,
    ReferenceMatch,
    list_bytes,
)
from glit.data.resemblance import Thumbnail, thumbnail
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import DatasetError, InputError
from glit.images import ImageError, decode
from glit.inputs.files import MOST_BYTES, ImageFiles
from glit.inputs.published import measured, read_annotations
from glit.inputs.source import entries, find_source
from glit.models.clip.opening import open_embedder
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.progress import StageProgress
from glit.stages.exclude import open_references
from glit.storage.members import REFUSED
from glit.storage.store import Entry, Store

if TYPE_CHECKING:
    from torch import Tensor

    from glit.models.clip.embedder import Embedder

_BATCH = 64
_AHEAD = 32
_COMPARED = 256
"""Images that are compared at once, which is twice as fast as 64 on two cores."""
_HASHES = ".sha256"
_HASH_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s+\*?(.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of ``references``: the number of images, and files that cannot be used."""

    num_images: int
    unusable: dict[str, str]
    """Files that are no image glit decodes, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A sample of a dataset that is in a list."""

    sample_id: str
    source_path: str
    found: ReferenceMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The source of the images of a list of references."""

    images: str
    """An argument as a build takes it: a folder, a glob, a list, shards, at an address too; or the
    images of annotations, as ``FORMAT:PATH`` (``docci:docci_descriptions.jsonlines``); or a file
    ``.sha256`` of hashes as ``sha256sum`` prints them."""
    folder: str = ""
    """Folder of the annotations' images; empty for where their format has them."""
    split: str = ""
    """The part of the annotations; empty for their reader's own."""

    def __post_init__(self) -> None:
        if self.split and not self.is_annotations:
            raise InputError(
                f"--split {self.split}: is of annotations, as docci:PATH; found {self.images}"
            )

    @property
    def _format(self) -> str:
        name, found, _ = self.images.partition(":")
        return name if found and name in measured() else ""

    @property
    def is_annotations(self) -> bool:
        """True if the images are those of annotations."""
        return bool(self._format)

    @property
    def root(self) -> str:
        """The folder or address of the images; empty of a list that is written already."""
        if self.images.endswith((".parquet", _HASHES)):
            return ""
        return self.listed()[0] if self._format else find_source(self.images).root

    def listed(self) -> tuple[str, list[Entry]]:
        """The folder or address of the images, and the images, by name.

        Raises:
            InputError: there are none, or one of the annotations is missing.
        """
        if not self._format:
            source = find_source(self.images)
            return source.root, sorted(entries(source), key=lambda entry: entry.path)
        found = read_annotations(
            self._format, Path(self.images.partition(":")[2]),
            images=Path(self.folder) if self.folder else None, split=self.split or None,
        )  # fmt: skip
        paths = sorted({os.path.abspath(image.path) for image in found})
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        return root, [Entry(os.path.relpath(p, root), os.path.getsize(p), "") for p in paths]

    def hashes(self) -> list[Reference] | None:
        """The references of a file of hashes, which resemble nothing; None if it is no such file.

        Raises:
            InputError: a line is no hash, or there is none.
        """
        if not self.images.endswith(_HASHES):
            return None
        try:
            lines = Path(self.images).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.images}: {error}") from error
        found = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if (match := _HASH_LINE.fullmatch(line.strip())) is None:
                raise InputError(f"{self.images}, line {number}: want 64 hex digits and a name")
            digest = match[1].lower()
            found.append(Reference(name=match[2] or digest, sha256=digest, thumbnail=NO_THUMBNAIL))
        if not found:
            raise InputError(f"{self.images}: holds no hash")
        return found


def write_references(
    wanted: Wanted, output: Path, progress: StageProgress, *, model: str = ""
) -> Written:
    """The work of :func:`glit.api.references`."""
    data, written = _made(wanted, progress, model=model)
    Store(output.parent).write(output.name, data)
    return written


def open_list(wanted: Wanted, progress: StageProgress, *, model: str = "") -> ReferenceList:
    """A file that :func:`write_references` wrote, or the list that it would write.

    Raises:
        InputError: there is no such list, and none can be made of all the images.
    """
    if wanted.images.endswith(".parquet"):
        return open_references(wanted.images)
    data, written = _made(wanted, progress, model=model)
    for name, reason in written.unusable.items():
        raise InputError(
            f"{wanted.images}: {len(written.unusable)} of its files cannot be compared (first: "
            f"{name}: {reason}); write the list without them with 'glit overlap'"
        )
    return ReferenceList(data, wanted.images)


def _made(wanted: Wanted, progress: StageProgress, *, model: str) -> tuple[bytes, Written]:
    good, unusable = wanted.hashes(), {}
    if good is not None and model:
        raise InputError(f"{wanted.images}: hashes, of which {model} makes no embeddings")
    opened = open_embedder(model, needed_for="--model") if model else None
    if good is None:
        root, listed = wanted.listed()
        good, unusable = _read(root, listed, progress, opened)
        if not good:
            raise InputError(
                f"{wanted.images}: holds no image that can be used ({len(listed)} files found)"
            )
    sha256 = "" if opened is None else opened.sha256
    name = Path(model).name if Path(model).is_dir() else model
    written = Written(num_images=len(good), unusable=unusable)
    return list_bytes(good, model=name, sha256=sha256), written


def _read(
    root: str, listed: list[Entry], progress: StageProgress, model: Embedder | None
) -> tuple[list[Reference], dict[str, str]]:
    """The references of images, and why of some there is none."""
    store = ImageFiles(root)
    progress.begin("images", total=len(listed), done=0, drops=False)
    good, unusable = [], {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        made = map_ahead(pool, lambda entry: _reference(entry, store, model), listed, most=_AHEAD)
        for some in batched(zip(listed, made, strict=True), _BATCH):
            unusable |= {entry.path: each for entry, each in some if isinstance(each, str)}
            good += _embedded([each for _, each in some if not isinstance(each, str)], model)
            progress.advance(len(some))
    return good, unusable


def _embedded(
    made: list[tuple[Reference, Tensor | None]], model: Embedder | None
) -> list[Reference]:
    if model is None:
        return [reference for reference, _ in made]
    vectors = model.embed([square for _, square in made if square is not None])
    return [
        replace(reference, embedding=vector)
        for (reference, _), vector in zip(made, vectors, strict=True)
    ]


def _reference(
    entry: Entry, store: Store, model: Embedder | None
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
    dataset: Dataset,
    references: ReferenceList,
    progress: StageProgress,
    *,
    model: str,
    cosine: float,
) -> Iterator[Overlap]:
    """The samples of a dataset that a list holds, in order; see :func:`glit.api.overlap`.

    Raises:
        InputError: the list has no embeddings of this model.
        DatasetError: an image of the dataset cannot be read.
    """
    opened = open_embedder(model, needed_for="--model") if model else None
    if opened is not None:
        references.check_model(model, opened.sha256)
    progress.begin("images", total=len(dataset), done=0, drops=False)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for rows in batched(dataset.rows(), _COMPARED):
            seen = list(pool.map(lambda row: _thumbnail(row, opened), rows))
            squares = [square for _, square in seen if square is not None]
            vectors = [None] * len(rows) if opened is None else opened.embed(squares)
            compare = partial(_find, references, cosine=cosine)
            parts = zip(rows, [small for small, _ in seen], vectors, strict=True)
            found = pool.map(compare, batched(parts, -(-len(rows) // usable_cores())))
            for row, other in zip(rows, chain.from_iterable(found), strict=True):
                if other is not None:
                    yield Overlap(sample_id=row.sample_id, source_path=row.source_path, found=other)
            progress.advance(len(rows))


def _find(
    references: ReferenceList,
    images: list[tuple[Row, Thumbnail, Float32[np.ndarray, " D"] | None]],
    *,
    cosine: float,
) -> list[ReferenceMatch | None]:
    vectors = [vector for _, _, vector in images if vector is not None]
    return references.find(
        [row.sample_id for row, _, _ in images], [small for _, small, _ in images],
        embeddings=np.stack(vectors) if vectors else None, cosine=cosine,
    )  # fmt: skip


def _thumbnail(row: Row, model: Embedder | None) -> tuple[Thumbnail, Tensor | None]:
    try:
        pixels = row.pixels()
    except ImageError as error:
        raise DatasetError(f"{row.source_path}: {error}; run 'glit verify'") from error
    return thumbnail(pixels), None if model is None else model.square(pixels)
