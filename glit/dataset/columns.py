"""A row group in memory: nested columns as flat arrays, rows as records.

Arrow keeps a list of structs as offsets and flat columns; read that way, a row costs a few array
look-ups instead of fifty small dictionaries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from glit.data.records import Box, Caption, Pair, Region, Sentence
from glit.data.schema import DATASET_SCHEMA, MASK, has_captions
from glit.dataset.row import Row, check_size
from glit.errors import DatasetError
from glit.images import Pixels, decode

_STANDARD = frozenset(DATASET_SCHEMA.names)
StoredImage = Callable[[str], bytes]
"""Reads the file of an image that the dataset stores by path."""


def _values(values: Any) -> list[Any]:
    """Arrow's values as Python's.

    Raises:
        DatasetError: a text that is none: the file is damaged.
    """
    try:
        return values.to_pylist()
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"a text is not valid UTF-8 ({error}): run 'glit verify' and repair the dataset"
        ) from error


def whole(column: pa.ChunkedArray) -> Any:
    """A column as one array."""
    merged: Any = column.combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


class NestedColumn:
    """A column of lists of structs."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        merged = whole(column)
        offsets = merged.offsets.to_numpy()
        self.start: np.ndarray = offsets - offsets[0]
        """Row i's values are those from ``start[i]`` to ``start[i + 1]``."""
        self._values = merged.values.slice(offsets[0], self.start[-1])
        self._fields: dict[str, Any] = {}
        self._lists: dict[str, list[Any]] = {}

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of values of every row."""
        return np.diff(self.start)

    @cached_property
    def row(self) -> np.ndarray:
        """The row that every value belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def __getitem__(self, field: str) -> Any:
        """All values of a field: a NumPy array, of texts a list."""
        if field not in self._fields:
            values = self._values.field(field)
            text = pa.types.is_string(values.type)
            self._fields[field] = _values(values) if text else values.to_numpy(zero_copy_only=False)
        return self._fields[field]

    def as_list(self, field: str) -> list[Any]:
        """The same as Python's own values, which are quicker to look at one by one."""
        if field not in self._lists:
            values = self[field]
            self._lists[field] = values if isinstance(values, list) else values.tolist()
        return self._lists[field]

    def optional(self, field: str, at: int) -> float | None:
        """A number; None if it is null."""
        value = float(self[field][at])
        return None if np.isnan(value) else value

    def span(self, row: int) -> range:
        """Positions of a row's values in the flat arrays."""
        return range(int(self.start[row]), int(self.start[row + 1]))


class RowGroup:
    """Consecutive rows of a dataset, with the requested columns."""

    def __init__(self, table: pa.Table, stored_image: StoredImage, *, name: str) -> None:
        self.table = table.combine_chunks()
        self.name = name
        """File and row group, for messages."""
        self._stored_image = stored_image

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Row]:
        return (self[row] for row in range(len(self)))

    @cached_property
    def sentences(self) -> NestedColumn:
        """The sentences of all rows."""
        return NestedColumn(self.table.column("sentences"))

    @cached_property
    def regions(self) -> NestedColumn:
        """The regions of all rows."""
        return NestedColumn(self.table.column("regions"))

    @cached_property
    def pairs(self) -> NestedColumn:
        """The pairs of all rows."""
        return NestedColumn(self.table.column("pairs"))

    @cached_property
    def phrases(self) -> NestedColumn:
        """The phrases of all rows, of a dataset that has some."""
        return NestedColumn(self.table.column("phrases"))

    @cached_property
    def groundings(self) -> NestedColumn:
        """The phrases' regions of all rows, of a dataset that has some."""
        return NestedColumn(self.table.column("groundings"))

    @cached_property
    def negatives(self) -> NestedColumn | None:
        """False sentences (structs of sentence, kind, text) of all rows; None if the column is
        missing or was not read."""
        if "negatives" not in self.table.column_names:
            return None
        return NestedColumn(self.table.column("negatives"))

    @cached_property
    def masks(self) -> NestedColumn | None:
        """The masks that were kept of regions (structs of region, counts) of all rows; None if the
        column is missing, was not read, or is of somebody's own stage."""
        if "masks" not in self.table.column_names:
            return None
        column = self.table.column("masks")
        return NestedColumn(column) if column.type == pa.list_(MASK) else None

    def captions_of(self, row: int) -> list[dict[str, str]]:
        """A row's captions of all kinds (kind, text, source); none if the column is missing, was
        not read, or is of somebody's own stage."""
        return self.value("captions", row) if has_captions(self.table.schema) else []

    def value(self, column: str, row: int) -> Any:
        """A value of a flat column."""
        return _values(self.table.column(column).slice(row, 1))[0]

    def without_images(self) -> RowGroup:
        """The same rows; no image is read."""
        return RowGroup(self.table.drop_columns(["image"]), self._stored_image, name=self.name)

    def image(self, row: int) -> bytes:
        """The encoded image file of a row.

        Raises:
            DatasetError: it is stored by path and cannot be read, or is another image now.
        """
        data = self.table.column("image")[row]["bytes"].as_py()
        if data is not None:
            return data
        path = self.value("source_path", row)
        data = self._stored_image(path)
        if hashlib.sha256(data).hexdigest() != self.value("sample_id", row):
            raise DatasetError(
                f"image {path} is not the one that the dataset was built from (its SHA-256 is "
                "another); set image_root to the folder of that build"
            )
        return data

    def pixels(self, row: int) -> Pixels:
        """Decode the image of a row, as :meth:`Row.pixels`; needs ``width`` and ``height``."""
        pixels, name = decode(self.image(row)), self.value("source_path", row)
        width, height = self.value("width", row), self.value("height", row)
        check_size(pixels, width=width, height=height, name=name)
        return pixels

    def __getitem__(self, row: int) -> Row:
        """A row as a record; its image is left out if the column was."""
        names = self.table.column_names
        number = len(self.sentences.span(row))
        similarity = np.array(self.value("similarity", row), dtype=np.float32)
        whole, phrases, agreement = (
            np.array(value, dtype=np.float32) if value is not None else None
            for name in ("image_similarity", "phrase_similarity", "agreement")
            for value in [self.value(name, row) if name in names else None]
        )
        return Row(
            sample_id=self.value("sample_id", row),
            source_path=self.value("source_path", row),
            width=self.value("width", row),
            height=self.value("height", row),
            image=self.image(row) if "image" in names else None,
            caption=Caption(text=self.value("caption", row), **self.value("caption_source", row)),
            sentences=self.sentences_of(row),
            regions=self.regions_of(row),
            similarity=similarity.reshape(number, -1),
            image_similarity=whole,
            phrase_similarity=None if phrases is None else phrases.reshape(number, -1),
            agreement=None if agreement is None else agreement.reshape(number, -1),
            pairs=self.pairs_of(row),
            extra={name: self.value(name, row) for name in names if name not in _STANDARD},
        )

    def sentences_of(self, row: int) -> tuple[Sentence, ...]:
        """A row's sentences."""
        column = self.sentences
        return tuple(
            Sentence(
                text=column["text"][at],
                char_start=int(column["char_start"][at]),
                char_end=int(column["char_end"][at]),
                token_start=int(column["token_start"][at]),
                token_end=int(column["token_end"][at]),
                in_window=bool(column["in_window"][at]),
                truncated=bool(column["truncated"][at]),
                mean_logprob=column.optional("mean_logprob", at),
                min_logprob=column.optional("min_logprob", at),
            )
            for at in column.span(row)
        )

    def regions_of(self, row: int) -> tuple[Region, ...]:
        """A row's regions."""
        column = self.regions
        return tuple(
            Region(
                box=Box(**{key: float(column[key][at]) for key in ("x0", "y0", "x1", "y1")}),
                score=float(column["score"][at]),
                label=column["label"][at],
                source=column["source"][at],
            )
            for at in column.span(row)
        )

    def pairs_of(self, row: int) -> tuple[Pair, ...]:
        """A row's pairs, best first."""
        column = self.pairs
        return tuple(
            Pair(
                sentence=int(column["sentence"][at]),
                region=int(column["region"][at]),
                similarity=float(column["similarity"][at]),
                global_wins=bool(column["global_wins"][at]),
                probability=column.optional("probability", at),
                support=column.optional("support", at),
            )
            for at in column.span(row)
        )
