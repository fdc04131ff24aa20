"""The shards of a dataset as the trainer reads them: row groups by number, samples by row.

Nothing is copied to disk and no index is built: the Parquet footers say where everything is.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs

from glit.errors import DatasetError, InputError
from glit.schema import META_TOKENIZER

READ_COLUMNS = (
    "sample_id",
    "image",
    "source_path",
    "width",
    "height",
    "caption",
    "sentences",
    "regions",
    "pairs",
)
"""All columns but the similarity matrix, which no objective reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Where a row group is."""

    path: str
    """File, relative to the dataset."""

    index: int
    """Number inside the file."""

    num_rows: int
    """Samples in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPair:
    """A sentence and its region, as training uses them."""

    sentence: str
    """The sentence's text."""

    token_span: tuple[int, int]
    """Tokens of the caption it is made of; (0, 0) where it leaves the window."""

    box_xyxy: tuple[float, float, float, float]
    """The region, in pixels of the upright image."""

    similarity: float
    """The matcher's cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sample of the dataset, its image still encoded."""

    sample_id: str
    image: bytes
    """The encoded image file; empty where images were not read."""
    width: int
    height: int
    caption: str
    sentences: tuple[tuple[int, int], ...]
    """Character spans of the caption's sentences."""
    pairs: tuple[LocalPair, ...]
    """Usable local pairs, best first: those where the whole image did not win."""


class Shards:
    """A finished dataset's Parquet files. Safe to share between threads."""

    def __init__(self, dataset: str, *, image_root: str = "") -> None:
        """Read the footers of all files.

        Args:
            dataset: folder or address of a finished dataset.
            image_root: the ingested folder, for a dataset that stores images by path.

        Raises:
            InputError: there is no dataset, or it is not finished.
            DatasetError: a file of the manifest is missing or cannot be read.
        """
        self.dataset = dataset
        self._fs, self._base = url_to_fs(dataset)
        self._local = self._fs.protocol in ("file", ("file", "local"))
        manifest = self._manifest()
        self._metadata: dict[str, pq.FileMetaData] = {}
        self.row_groups: list[RowGroup] = []
        for path in self._data_files(manifest):
            self._add_file(path)
        self.num_samples = sum(group.num_rows for group in self.row_groups)
        if self.num_samples == 0:
            raise InputError(f"{dataset}: the dataset has no samples; build it from more images")
        self.image_root = image_root

    @property
    def tokenizer(self) -> dict[str, Any]:
        """``name``, ``sha256`` and ``context`` of the tokenizer the spans were made with."""
        metadata = next(iter(self._metadata.values())).schema.to_arrow_schema().metadata or {}
        return json.loads(metadata.get(META_TOKENIZER, b"{}"))

    def read(self, group: int, *, images: bool = True) -> Rows:
        """The rows of a row group, by its number in ``row_groups``; images only if asked for.

        Raises DatasetError when the file has been deleted or cut short since it was opened.
        """
        columns = READ_COLUMNS if images else tuple(c for c in READ_COLUMNS if c != "image")
        return Rows(self._read(group, columns), self._stored_image)

    def _read(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        """Some columns of a row group.

        Raises DatasetError when the file has been deleted or cut short since it was opened.
        """
        place = self.row_groups[group]
        try:
            with self._open(place.path) as file:
                return file.read_row_group(place.index, columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(
                f"{self.dataset}/{place.path}: row group {place.index} cannot be read "
                f"({_first_line(error)}); the file was changed, cut short or removed: run "
                "'glit verify', mend the dataset, then go on with --resume"
            ) from error

    def has_local_pairs(self) -> bool:
        """Whether any sample has a usable local pair; stops at the first."""
        for group in range(len(self.row_groups)):
            pairs = self._read(group, ("pairs",)).column("pairs").to_pylist()
            if any(not pair["global_wins"] for row in pairs for pair in row or ()):
                return True
        return False

    def _manifest(self) -> dict[str, Any]:
        path = f"{self._base}/manifest.json"
        try:
            return json.loads(self._fs.cat_file(path))
        except FileNotFoundError as error:
            raise InputError(
                f"{self.dataset}: no manifest.json, so there is no finished dataset here; "
                "finish it with 'glit build', or check the path"
            ) from error
        except ValueError as error:
            raise DatasetError(
                f"{self.dataset}/manifest.json: not valid JSON ({error}); rebuild the dataset"
            ) from error

    def _data_files(self, manifest: dict[str, Any]) -> list[str]:
        found = {
            f"data/{p.rsplit('/', 1)[-1]}" for p in self._fs.glob(f"{self._base}/data/*.parquet")
        }
        named = {path for path in _manifest_paths(manifest) if path.startswith("data/")}
        missing = sorted(named - found)
        if missing:
            raise DatasetError(
                f"{self.dataset}: {missing[0]} is in the manifest but not on disk "
                f"({len(missing)} missing in all); run 'glit verify' and mend the dataset"
            )
        return sorted(named or found)

    def _add_file(self, path: str) -> None:
        try:
            if self._local:
                metadata = pq.read_metadata(f"{self._base}/{path}")
            else:
                with self._fs.open(f"{self._base}/{path}") as handle:
                    metadata = pq.read_metadata(handle)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(
                f"{self.dataset}/{path}: not a readable Parquet file ({_first_line(error)}); "
                "run 'glit verify' and mend the dataset"
            ) from error
        self._metadata[path] = metadata
        for index in range(metadata.num_row_groups):
            rows = metadata.row_group(index).num_rows
            self.row_groups.append(RowGroup(path=path, index=index, num_rows=rows))

    def _open(self, path: str) -> pq.ParquetFile:
        full = f"{self._base}/{path}"
        source = full if self._local else self._fs.open(full)
        return pq.ParquetFile(source, metadata=self._metadata[path], pre_buffer=not self._local)

    def _stored_image(self, source_path: str) -> bytes:
        path = f"{self.image_root}/{source_path}" if self.image_root else source_path
        try:
            return self._fs.cat_file(path)
        except OSError as error:
            raise DatasetError(
                f"{self.dataset}: image {source_path} is stored by path and cannot be read below "
                f"{self.image_root or 'the current folder'!r}; set train.image_root (or "
                "evaluate.image_root) to the folder the dataset was built from"
            ) from error


class Rows:
    """A row group, its nested columns laid out so that one row costs a few array look-ups."""

    def __init__(self, table: pa.Table, stored_image: Callable[[str], bytes]) -> None:
        self._table = table.combine_chunks()
        self._stored_image = stored_image
        self._has_images = "image" in table.column_names
        self._sentences = _Nested(
            table,
            "sentences",
            ("char_start", "char_end", "token_start", "token_end", "in_window"),
        )
        self._regions = _Nested(table, "regions", ("x0", "y0", "x1", "y1"))
        self._pairs = _Nested(table, "pairs", ("sentence", "region", "similarity", "global_wins"))
        self._texts = self._sentences.values.field("text")

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, index: int) -> Row:
        first, last = self._sentences.start[index], self._sentences.start[index + 1]
        fields = self._sentences.fields
        return Row(
            sample_id=self._table.column("sample_id")[index].as_py(),
            image=self._image(index) if self._has_images else b"",
            width=self._table.column("width")[index].as_py(),
            height=self._table.column("height")[index].as_py(),
            caption=self._table.column("caption")[index].as_py(),
            sentences=tuple(
                (int(fields["char_start"][at]), int(fields["char_end"][at]))
                for at in range(first, last)
            ),
            pairs=tuple(self._usable_pairs(index)),
        )

    def _image(self, index: int) -> bytes:
        data = self._table.column("image")[index]["bytes"].as_py()
        if data is None:
            data = self._stored_image(self._table.column("source_path")[index].as_py())
        return data

    def _usable_pairs(self, index: int) -> Iterator[LocalPair]:
        first_sentence, first_region = self._sentences.start[index], self._regions.start[index]
        pairs, sentences, regions = (
            self._pairs.fields,
            self._sentences.fields,
            self._regions.fields,
        )
        for at in range(self._pairs.start[index], self._pairs.start[index + 1]):
            if pairs["global_wins"][at]:
                continue
            sentence = first_sentence + int(pairs["sentence"][at])
            region = first_region + int(pairs["region"][at])
            span = (int(sentences["token_start"][sentence]), int(sentences["token_end"][sentence]))
            yield LocalPair(
                sentence=self._texts[sentence].as_py(),
                token_span=span if sentences["in_window"][sentence] else (0, 0),
                box_xyxy=(
                    float(regions["x0"][region]),
                    float(regions["y0"][region]),
                    float(regions["x1"][region]),
                    float(regions["y1"][region]),
                ),
                similarity=float(pairs["similarity"][at]),
            )


class RowGroupCache:
    """Row groups by number, read once each, the least recently used ones let go."""

    def __init__(self, shards: Shards, *, capacity: int) -> None:
        self._shards = shards
        self._capacity = capacity
        self._lock = threading.Lock()
        self._groups: OrderedDict[int, Future[Rows]] = OrderedDict()

    def get(self, group: int) -> Rows:
        """The rows of a row group; the first caller reads it, the others wait."""
        with self._lock:
            future = self._groups.get(group)
            mine = future is None
            if future is None:
                future = self._groups[group] = Future()
                if len(self._groups) > self._capacity:
                    self._groups.popitem(last=False)
            else:
                self._groups.move_to_end(group)
        if mine:
            try:
                future.set_result(self._shards.read(group))
            except BaseException as error:  # noqa: BLE001 (whoever waits gets it)
                future.set_exception(error)
        return future.result()


class _Nested:
    """A list-of-structs column as offsets and NumPy columns of its values."""

    def __init__(self, table: pa.Table, name: str, fields: tuple[str, ...]) -> None:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0)
        self.start = column.offsets.to_numpy()
        self.values = column.values
        self.fields = {
            field: self.values.field(field).to_numpy(zero_copy_only=False) for field in fields
        }


def best_pairs(
    pairs: tuple[LocalPair, ...], *, most: int, distinct_regions: bool
) -> tuple[LocalPair, ...]:
    """The first ``most`` pairs; with ``distinct_regions`` only the best sentence of each region."""
    if not distinct_regions:
        return pairs[:most]
    seen: set[tuple[float, ...]] = set()
    kept = []
    for pair in pairs:
        if pair.box_xyxy not in seen:
            seen.add(pair.box_xyxy)
            kept.append(pair)
    return tuple(kept[:most])


def _manifest_paths(manifest: dict[str, Any]) -> list[str]:
    files = manifest.get("files") or []
    if isinstance(files, dict):
        return list(files)
    return [entry["path"] for entry in files]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
