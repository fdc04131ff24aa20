"""Bounds of what a file's columns decode to, where its pages are as most writers make them.

A million rows have some hundred thousand pages, so a loop over their headers takes longer than many
a query. NumPy parses one header of each column of many row groups at a time instead: they are the
same bytes with other numbers between them. Other pages are left to ``page_headers``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.parquet as pq

from glit.data.limits import BATCH_BYTES

_COLUMNS_AT_ONCE = 2048
_HELD, _GAP = 4096, 1 << 14
"""Bytes of a column that are read, and most bytes between two of them that are read too."""
_FEWEST = 32
"""Columns that still have pages, below which a loop is no slower."""
_MOST_PAGES = 64
_LONGEST = 128
"""More bytes than a header of this kind has."""
_NUMBER = 0x15
"""Thrift's mark of a 32-bit number that is the next field."""
_DATA, _DICTIONARY = (0, 0x2C), (2, 0x4C)
"""Kinds of pages, and the marks of the structs that say what is in them."""
_LOOKED_UP, _DELTA_BYTE_ARRAY = (2, 8), 7
"""Encodings that take values from a dictionary, and one that repeats the value before."""


def usual_totals(file: Any, footer: pq.FileMetaData, widths: list[int]) -> np.ndarray:
    """Most bytes that columns decode to, by row group and column; NaN where a page is unusual.

    Args:
        file: the Parquet file.
        footer: of it.
        widths: bytes of a value of each column; 0 where values differ.
    """
    totals = np.full((footer.num_row_groups, len(widths)), np.nan)
    step = max(1, _COLUMNS_AT_ONCE // max(1, len(widths)))
    for first in range(0, len(totals), step):
        groups = [footer.row_group(n) for n in range(first, min(len(totals), first + step))]
        if any(group.num_columns != len(widths) for group in groups):
            continue
        chunks = np.array(
            [
                (c.data_page_offset, c.dictionary_page_offset or 0, c.total_compressed_size,
                 c.num_values)
                for group in groups for c in map(group.column, range(len(widths)))
            ],
            dtype=np.int64,
        ).reshape(-1, 4)  # fmt: skip
        found = _totals(file, chunks, np.tile(widths, len(groups)))
        totals[first : first + step] = found.reshape(len(groups), -1)
    return totals


def _totals(file: Any, chunks: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Bounds of columns: where they begin, where their dictionaries do, bytes, and values."""
    start, dictionary, size, num_values = chunks.T
    start = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
    sane = (start >= 0) & (start < 1 << 48) & (size >= 0) & (size < 1 << 48)
    start, size = start * sane, size * sane
    data, at, limit = _read(file, start, size)
    end = at + size
    total, seen, looked_up, of_dictionary = np.zeros((4, len(at)))
    left = np.flatnonzero(sane)
    done = sane.copy()
    for _ in range(_MOST_PAGES):
        left = left[(at[left] < end[left]) & (seen[left] < num_values[left])]
        if len(left) < _FEWEST:
            break
        fields, after = _headers(data, at[left], limit[left])
        usual = after > 0
        done[left[~usual]] = False
        left, after = left[usual], after[usual]
        is_dictionary, num_bytes, packed, count, encoding = fields[:, usual]
        values = np.where(is_dictionary, 0, count)
        seen[left] += values
        differ = (width[left] == 0) & (encoding == _DELTA_BYTE_ARRAY)
        total[left] += num_bytes + values * num_bytes * differ
        looked_up[left] += values * np.isin(encoding, _LOOKED_UP)
        first = (is_dictionary > 0) & (of_dictionary[left] == 0)
        of_dictionary[left[first]] = num_bytes[first]
        at[left] = after + packed
    done[left] = False
    repeated = looked_up * of_dictionary * (width == 0)
    done &= repeated <= BATCH_BYTES
    return np.where(done, total + seen * (8 + width) + repeated, np.nan)


def _read(
    file: Any, start: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes of parts of a file; where each column begins in them, and where its part ends."""
    order = np.argsort(start)
    first = start[order]
    last = np.maximum.accumulate((start + np.minimum(size, _HELD))[order])
    new = np.flatnonzero(np.append(True, first[1:] > last[:-1] + _GAP))
    begin, end = first[new], last[np.append(new[1:], len(first)) - 1]
    parts = []
    for here, there in zip(begin.tolist(), end.tolist(), strict=True):
        file.seek(here)
        parts.append(file.read(there - here))
    place = np.cumsum([0, *map(len, parts)])
    part = np.searchsorted(begin, start, side="right") - 1
    data = np.frombuffer(b"".join([*parts, bytes(_LONGEST)]), np.uint8)
    return data, place[part] + start - begin[part], place[part + 1]


def _headers(data: np.ndarray, at: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fields of headers, and where they end; 0 for one that is unusual or goes beyond its limit.

    The fields: whether it is a dictionary, bytes, bytes in the file, values, encoding.
    """
    usual = at < limit
    at = np.where(usual, at, 0)
    every = np.ones(len(at), bool)
    kind, num_bytes, packed = (_number(data, at, usual, every) for _ in range(3))
    mark = data[at]
    is_data, is_dictionary = ((kind == k) & (mark == m) for k, m in (_DATA, _DICTIONARY))
    usual &= is_data | is_dictionary
    at += 1
    count, encoding = (_number(data, at, usual, every) for _ in range(2))
    for _ in range(2):  # how levels are encoded
        _number(data, at, usual, is_data)
    is_sorted = is_dictionary & ((data[at] == 0x11) | (data[at] == 0x12))
    at += is_sorted
    usual &= (data[at] == 0) & (data[at + 1] == 0) & (at + 2 <= limit)
    return np.array([is_dictionary, num_bytes, packed, count, encoding]), (at + 2) * usual


def _number(data: np.ndarray, at: np.ndarray, usual: np.ndarray, among: np.ndarray) -> np.ndarray:
    """A number below 2 ** 27 that is the next field of some headers; moves ``at`` behind it."""
    usual &= (data[at] == _NUMBER) | ~among
    at += among
    more, value = among, np.zeros(len(at), np.int64)
    for shift in (0, 7, 14, 21):
        byte = data[at]
        value += ((byte & 127) * more).astype(np.int64) << shift
        at += more
        more = more & (byte > 127)
        if not more.any():
            break
    usual &= ~more & (value & 1 == 0)
    return value >> 1
