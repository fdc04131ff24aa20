"""Read Parquet files with a column of encoded images, by row groups."""

from __future__ import annotations

import bisect
import re
import threading
from collections import OrderedDict
from itertools import accumulate
from typing import Any

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet, TooMuch
from glit.data.limits import IMAGES_BYTES
from glit.errors import InputError, first_line

IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "image_bytes")
_CAPTION_NAMES = ("caption", "text", "txt")
_RECENT = 2
_MEMBER = re.compile(r"(\d{9})(\.txt)?")


def member(row: int) -> str:
    """The member name of a row.

    >>> member(12)
    '000000012'
    """
    return f"{row:09d}"


class TableShard:
    """A Parquet file with images. Threads may share it; one reads at a time.

    Args:
        file: path or opened file.
        name: what people call it.
        size: bytes of the file; more rows than that it cannot have.

    Raises:
        InputError: several columns may hold the images, or a row group is too large.
        OSError: it is not a readable Parquet file.
    """

    def __init__(self, file: Any, name: str, *, size: int) -> None:
        self._name = name
        try:
            self._file = BoundedParquet(file, pre_buffer=True)
            schema, metadata = self._file.schema_arrow, self._file.metadata
            self._image = self._file.images = _image_column(schema, name)
            self._caption = next((n for n in _CAPTION_NAMES if is_text(schema, n)), None)
            groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
            self._ends = list(accumulate(group.num_rows for group in groups))
            if self.num_rows > size or any(group.num_rows < 0 for group in groups):
                raise ValueError(f"its footer says {self.num_rows} rows in {size} bytes")
            # of whole groups: to ask for a column ends the process where a footer is damaged
            self._bytes = [group.total_byte_size for group in groups]
        except (pa.ArrowException, ValueError, LookupError) as error:
            raise OSError(f"not a readable Parquet file ({first_line(error)})") from error
        if self._image and max(self._bytes, default=0) > IMAGES_BYTES:
            raise InputError(
                f"{name}: a row group of {max(self._bytes) >> 20} MB, which would have to be read "
                f"at once; want at most {IMAGES_BYTES >> 20} MB: write it with row_group_size=100"
            )
        self._lock = threading.Lock()
        self._recent: OrderedDict[tuple[int, str], pa.ChunkedArray] = OrderedDict()
        self._too_much: dict[tuple[int, str], str] = {}
        """Why, of row groups that fill memory: each of their rows would decode as much again."""

    @property
    def has_images(self) -> bool:
        """True if a column holds images."""
        return bool(self._image)

    @property
    def num_rows(self) -> int:
        return self._ends[-1] if self._ends else 0

    def size(self, row: int) -> int:
        """The average bytes per image in its row group."""
        group, _ = self._place(row)
        return self._bytes[group] // max(1, self._file.metadata.row_group(group).num_rows)

    def read(self, name: str) -> bytes:
        """The image of a row ``000000012``, the caption of ``000000012.txt``.

        Raises:
            FileNotFoundError: no such row, or it has none.
            OSError: the row group is damaged.
        """
        found = _MEMBER.fullmatch(name)
        if found is None or int(found[1]) >= self.num_rows:
            raise FileNotFoundError(name)
        column = self._caption if found[2] else self._image
        value = None if not column else self._value(int(found[1]), column)
        if value is None:
            raise FileNotFoundError(f"row {int(found[1])} of {self._name} holds none")
        return value.encode() if isinstance(value, str) else value

    def _value(self, row: int, column: str) -> Any:
        group, at = self._place(row)
        found = self._column(group, column)
        if at >= len(found):
            raise OSError(
                f"row group {group} of {self._name} is damaged (it has {len(found)} rows)"
            )
        value = found[at].as_py()
        return value.get("bytes") if isinstance(value, dict) else value

    def _held(self) -> int:
        return sum(column.nbytes for column in self._recent.values())

    def _place(self, row: int) -> tuple[int, int]:
        group = bisect.bisect_right(self._ends, row)
        return group, row - (self._ends[group - 1] if group else 0)

    def _column(self, group: int, column: str) -> pa.ChunkedArray:
        with self._lock:
            key = (group, column)
            if key in self._too_much:
                raise OSError(self._too_much[key])
            if key not in self._recent:
                leaf = column
                if pa.types.is_struct(self._file.schema_arrow.field(column).type):
                    leaf = f"{column}.bytes"
                while self._recent and (
                    len(self._recent) >= _RECENT or self._held() + self._bytes[group] > IMAGES_BYTES
                ):
                    self._recent.popitem(last=False)
                try:
                    table = self._file.read_row_group(group, columns=[leaf])
                except TooMuch as error:
                    self._too_much[key] = f"{self._name}: {error}"
                    raise OSError(self._too_much[key]) from error
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise OSError(
                        f"row group {group} of {self._name} is damaged ({first_line(error)})"
                    ) from error
                self._recent[key] = table.column(column)
            self._recent.move_to_end(key)
            return self._recent[key]


def _image_column(schema: pa.Schema, name: str) -> str:
    """The column that holds encoded images; empty for none."""
    found = [field.name for field in schema if _holds_bytes(field.type)]
    for wanted in IMAGE_NAMES:
        if wanted in found:
            return wanted
    lists = [field for field in schema if _holds_lists(field.type)]
    if lists:
        others = f", and {', '.join(found)} may hold images too" if found else ""
        raise InputError(
            f"{name}: the column {lists[0].name!r} holds several images a row "
            f"({lists[0].type!s:.80}){others}; write one image a row, in a column 'image'"
        )
    if len(found) > 1:
        raise InputError(
            f"{name}: several columns may hold the images ({', '.join(found)}); name the image "
            "column 'image'"
        )
    return found[0] if found else ""


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, which a dictionary may hold."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is(kind: pa.DataType, *names: str) -> bool:
    """Return whether an Arrow type is one of these."""
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _holds_bytes(kind: pa.DataType) -> bool:
    kind = _value_type(kind)
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _holds_bytes(kind.field(index).type)
    return _is(kind, "binary", "large_binary", "binary_view")


def _is_list(kind: pa.DataType) -> bool:
    return _is(kind, "list", "large_list", "fixed_size_list", "list_view", "large_list_view")


def _holds_lists(kind: pa.DataType) -> bool:
    return _is_list(kind) and (_holds_bytes(kind.value_type) or _holds_lists(kind.value_type))


def is_text(schema: pa.Schema, name: str) -> bool:
    """Return whether a table has a column of this name that holds texts."""
    index = schema.get_field_index(name)
    kinds = ("string", "large_string", "string_view")
    return index >= 0 and _is(_value_type(schema.field(index).type), *kinds)


def is_numbers(schema: pa.Schema, name: str) -> bool:
    """Return whether a table has a column of this name that holds lists of numbers, nested or
    not."""
    index = schema.get_field_index(name)
    kind = inner = schema.field(index).type if index >= 0 else pa.null()
    while _is_list(inner):
        inner = inner.value_type
    return inner is not kind and _is(inner, "integer", "floating")
