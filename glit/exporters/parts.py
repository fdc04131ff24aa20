"""Shared parts of exporters: image files, pairs of a row, tables in files of bounded size."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.schema import CAPTIONS
from glit.dataset.row import captions_of, is_grounded
from glit.runtime.prefetch import batched

if TYPE_CHECKING:
    from glit.data.records import Pair, Region, Sentence
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row

NO_CATEGORY = "region"
"""The category of regions without a label, as SAM's are, and of cells of the grid, whose label is a
place."""
ROWS_A_GROUP = 100
"""Rows of a row group in tables with pictures."""
FILE_BYTES = 400 << 20
"""A data file is closed when it has grown to this."""
_LONGEST_NAME = 200
"""Bytes of a file's name; file systems end at 255."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')
"""Characters that no file name holds on some system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedSentence:
    """A sentence with a region, and that region."""

    pair: Pair
    sentence: Sentence
    region: Region

    @property
    def span(self) -> list[int]:
        """Characters ``[start, end)`` of the caption."""
        return [self.sentence.char_start, self.sentence.char_end]


def several_of(row: Row) -> dict[str, Any]:
    """The field ``captions`` of an image with several captions; nothing for one."""
    return {CAPTIONS[0]: several} if (several := captions_of(row)) else {}


def category_of(region: Region) -> str:
    """The category of a region in formats for detection."""
    return NO_CATEGORY if region.is_grid else region.label or NO_CATEGORY


def local_of(row: Row) -> list[LocatedSentence]:
    """The usable pairs of a row, best first."""
    return [
        LocatedSentence(
            pair=pair, sentence=row.sentences[pair.sentence], region=row.regions[pair.region]
        )
        for pair in row.pairs
        if not pair.global_wins
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounded:
    """A noun phrase of the caption and a region in which a grounder found it."""

    text: str
    span: list[int]
    """Characters ``[start, end)`` of the caption."""
    region: int
    """Index into the row's regions."""
    score: float
    """The grounder's, 0 to 1."""


def grounded_of(row: Row) -> list[Grounded] | None:
    """The phrases of a row that were found, in order; None where no grounder was asked."""
    if not is_grounded(row):
        return None
    phrases = row.extra["phrases"]
    return [
        Grounded(
            text=phrases[each["phrase"]]["text"],
            span=[phrases[each["phrase"]][name] for name in ("char_start", "char_end")],
            region=each["region"],
            score=each["score"],
        )
        for each in row.extra["groundings"]
    ]


def xywh(region: Region) -> list[float]:
    """Left, top, width, height in pixels."""
    x0, y0, x1, y1 = region.box.xyxy
    return [x0, y0, x1 - x0, y1 - y0]


class PictureFolder:
    """The folder of an export's pictures, which have the names they were ingested under.

    A name that is no file name everywhere, or has the suffix of another format, is altered. A
    warning counts names that other systems take for one.
    """

    def __init__(self, dataset: Dataset, path: Path) -> None:
        self._dataset, self.path = dataset, path
        folded = np.concatenate([
            np.fromiter((hash(_folded(name)) for name in names), np.int64, len(names))
            for names in self._names()
        ])  # fmt: skip
        if clashes := len(folded) - len(np.unique(folded)):
            warnings.warn(
                f"{clashes} picture{'s' * (clashes != 1)}: the name is another's but for case or "
                "Unicode form; on macOS and Windows one replaces the other",
                stacklevel=3,
            )

    def _names(self) -> Iterator[list[str]]:
        """The source paths of each row group."""
        for number in range(len(self._dataset.places)):
            yield self._dataset.table(["source_path"], row_group=number)["source_path"].to_pylist()

    def write(self, row: Row) -> str:
        """Write a row's image file, upright; return its name in the folder, folders included.

        An altered name is never that of another image of the dataset.
        """
        return write_picture(row, self.path, is_reserved=self._is_reserved)

    def _is_reserved(self, name: str) -> bool:
        """Whether an image of the dataset has this path, or needs a folder or a file within it."""
        hashes, folders = self._sources
        paths = [name, *map(str, PurePosixPath(name).parents)]
        wanted = np.array([hash(path) for path in paths], dtype=np.int64)
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return name in folders or bool((hashes[at] == wanted).any())

    @cached_property
    def _sources(self) -> tuple[np.ndarray, set[str]]:
        """Sorted hashes of all source paths (8 bytes an image), and their folders."""
        folders: set[str] = set()
        groups = []
        for paths in self._names():
            groups.append(np.fromiter(map(hash, paths), dtype=np.int64, count=len(paths)))
            for path in paths:
                folder = path.rpartition("/")[0]
                while folder and folder not in folders:
                    folders.add(folder)
                    folder = folder.rpartition("/")[0]
        return np.sort(np.concatenate(groups)), folders


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def write_picture(
    row: Row, folder: Path, *, is_reserved: Callable[[str], bool] = lambda name: False
) -> str:
    """Write the image file into a folder, upright; return its name there.

    That is the name it was ingested under, folders included, with ``_`` for what no file name
    holds. Its sample's id takes the place of a name that another image has already, or that no file
    can have.

    Args:
        row: of the image.
        folder: of the pictures.
        is_reserved: whether an altered name is kept for another image.
    """
    from glit.images import upright_file

    data, suffix = upright_file(row.encoded())
    name = _name(row.source_path, suffix)
    try:
        if not name or (name != row.source_path and is_reserved(name)):
            raise FileExistsError
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("xb") as file:
            file.write(data)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        name = f"{row.sample_id}{suffix}"
        (folder / name).write_bytes(data)
    return name


def _name(source: str, suffix: str) -> str:
    """A path relative to the pictures' folder, which it cannot leave; empty if there is none."""
    parts = [_UNSAFE.sub("_", part) for part in source.split("/") if part not in ("", ".", "..")]
    if not parts or any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in parts):
        return ""
    last = PurePosixPath(parts[-1])
    kind = mimetypes.guess_type(last.name)[0] or ""
    if kind != mimetypes.guess_type(f"x{suffix}")[0]:  # it was encoded otherwise, or has none
        last = last.with_suffix(suffix) if kind.startswith("image/") else Path(f"{last}{suffix}")
    return "/".join([*parts[:-1], last.name])


def write_tables(
    rows: Iterable[dict[str, Any]],
    schema: pa.Schema,
    folder: Path,
    name: str,
    *,
    rows_a_group: int = ROWS_A_GROUP,
) -> list[Path]:
    """Write rows to Parquet files ``NAME-00000.parquet`` and so on, one row group in memory.

    The writer remembers some 15 KB of every row group until its file is whole.
    """
    paths: list[Path] = []
    writer: pq.ParquetWriter | None = None
    try:
        for group in batched(rows, rows_a_group):
            if writer is not None and paths[-1].stat().st_size >= FILE_BYTES:
                writer.close()
                writer = None
            if writer is None:
                paths.append(folder / f"{name}-{len(paths):05d}.parquet")
                writer = pq.ParquetWriter(paths[-1], schema, compression="zstd")
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    finally:
        if writer is not None:
            writer.close()
    return paths


def crop(row: Row, region: Region) -> bytes:
    """A region's pixels as PNG, with the picture's notices; at least one pixel each way.

    Raises:
        ImageError: the image is damaged.
    """
    from glit.images import encode_png

    x0, y0, x1, y1 = region.box.xyxy
    left, top = min(round(x0), row.width - 1), min(round(y0), row.height - 1)
    right, bottom = max(left + 1, round(x1)), max(top + 1, round(y1))
    return encode_png(row.encoded(), row.pixels()[top:bottom, left:right])
