"""Bounds of usual pages beside those of the reader that parses every header."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.data.bounded_parquet import BoundedParquet, TooMuch, _width
from glit.data.page_headers import _struct
from glit.data.parquet import PINNED
from glit.data.usual_pages import usual_totals

ROWS = st.integers(1, 300)
OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["zstd", "snappy", "none"]),
        "use_dictionary": st.sampled_from([False, True, ["text"]]),
        "data_page_version": st.sampled_from(["1.0", "1.0", "2.0"]),
        "data_page_size": st.sampled_from([100, 5000, 1 << 20]),
        "write_page_index": st.sampled_from([True, True, True, False]),
        "write_page_checksum": st.sampled_from([False, False, True]),
        "row_group_size": st.sampled_from([3, 50]),
    }
)


def _file(rows, options):
    table = pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "text": [f"{n % 7} of {n}" * (n % 50) for n in range(rows)],
            "few": ["one", None] * (rows // 2) + ["two"] * (rows % 2),
            "lists": [[{"a": n * 0.5, "b": "x" * n}] * (n % 3) for n in range(rows)],
            "flag": [n % 2 == 0 for n in range(rows)],
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, write_batch_size=8, **options)
    return file.getvalue()


def _both(data):
    """Totals that are found at once, and by the headers one at a time."""
    file = BoundedParquet(io.BytesIO(data))
    columns = [file.schema.column(n) for n in range(file.metadata.num_columns)]
    at_once = usual_totals(io.BytesIO(data), file.metadata, [_width(each) for each in columns])
    for group, totals in enumerate(at_once):
        for column, total in zip(columns, totals, strict=True):
            if not np.isnan(total):
                yield total, file._sizes(group, [column.path])[column.path].total


@given(rows=ROWS, options=OPTIONS)
def test_totals_are_those_of_the_headers_one_at_a_time(rows, options):
    for at_once, one_at_a_time in _both(_file(rows, options)):
        assert at_once == one_at_a_time


@given(
    rows=ROWS,
    options=OPTIONS,
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=30),
)
def test_totals_of_damaged_pages_are_no_others(rows, options, places):
    data = bytearray(_file(rows, options))
    pages = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    for place, byte in places:
        data[int(place * (pages - 1))] = byte
    for at_once, one_at_a_time in _both(bytes(data)):
        assert at_once == one_at_a_time


def test_what_glit_writes_is_usual():
    options = {**PINNED, "row_group_size": 50}
    assert len(list(_both(_file(300, options)))) == 6 * 6


def test_headers_beyond_what_was_read_are_left_to_others():
    options = {**PINNED, "compression": "none", "compression_level": None, "data_page_size": 30_000}
    columns = {f"{n}": pa.array(range(20_000), pa.int64()) for n in range(40)}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    assert list(_both(file.getvalue())) == []


def test_much_is_refused_if_headers_are_usual():
    numbers = pa.array(np.zeros(100_000, np.int32))
    columns = {f"{n}": numbers for n in range(40)}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **PINNED)
    for most, refused in ((40 * 1_700_000, False), (40 * 1_500_000, True)):
        with BoundedParquet(io.BytesIO(file.getvalue()), most=most) as opened:
            if refused:
                with pytest.raises(TooMuch):
                    opened.check()
            else:
                opened.check()


def test_a_header_of_the_usual_kind():
    """The bytes that ``usual_pages`` knows, by the parser of all headers."""
    header = bytes([0x15, 0, 0x15, 20, 0x15, 18, 0x2C, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0])
    assert _struct(header, 0, 0) == ({1: 0, 2: 10, 3: 9, 5: {1: 3, 2: 0, 3: 3, 4: 3}}, len(header))
