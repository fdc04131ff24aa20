"""Parquet files that decode to much more than they are."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glit.data.bounded_parquet import BoundedParquet, TooMuch
from glit.data.page_headers import _struct

LONG = "x" * 10_000
MOST = 1 << 20


def _written(column, **options):
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column}), file, compression="zstd", **options)
    assert len(file.getvalue()) < 5000
    file.seek(0)
    return file


def _of_a_dictionary():
    indices = pa.array(np.zeros(1000, np.int32))
    return _written(
        pa.DictionaryArray.from_arrays(indices, pa.array([LONG])),
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
    )


def _of_values_that_repeat():
    return _written(
        pa.array([LONG] * 1000),
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    )


def _of_one_list():
    numbers = pa.array(np.zeros(1_000_000, np.int32))
    return _written(pa.ListArray.from_arrays(pa.array([0, 1_000_000], pa.int32()), numbers))


@pytest.mark.parametrize("make", [_of_a_dictionary, _of_values_that_repeat, _of_one_list])
@pytest.mark.parametrize("is_path", [False, True])
def test_a_row_group_that_decodes_to_much_is_refused(make, is_path, tmp_path):
    data = make()
    if is_path:
        (tmp_path / "x.parquet").write_bytes(data.getvalue())
        data = tmp_path / "x.parquet"
    with BoundedParquet(data, most=MOST) as file:
        assert file.metadata.row_group(0).total_byte_size < MOST
        for read in (file.read, lambda: file.read_row_group(0)):
            with pytest.raises(TooMuch, match=r"row group 0 decodes to \d+ MB"):
                read()


@pytest.mark.parametrize("make", [_of_a_dictionary, _of_values_that_repeat])
def test_batches_of_long_values_have_few_rows(make, monkeypatch):
    monkeypatch.setattr("glit.data.bounded_parquet.BATCH_BYTES", 50_000)
    sizes, values = [], set()
    for batch in BoundedParquet(make(), most=MOST).iter_batches(16_384):
        sizes.append(batch.num_rows)
        values |= {*batch["text"].to_pylist()}
    assert sum(sizes) == 1000
    assert max(sizes) <= 5
    assert values == {LONG}


def test_one_list_is_not_read_in_batches_either():
    with pytest.raises(TooMuch):
        next(BoundedParquet(_of_one_list(), most=MOST).iter_batches(1))


def test_what_fits_is_what_pyarrow_reads(tmp_path):
    table = pa.table(
        {
            "n": pa.array(range(1000)),
            "text": pa.array(["one", "two"] * 500).dictionary_encode(),
            "lists": pa.array([[{"a": 1.5, "b": "x"}], []] * 500),
            "flag": pa.array([True, None] * 500),
        }
    )
    for version in ("1.0", "2.0"):
        for codec in ("zstd", "gzip", "snappy", "none", "lz4", "brotli"):
            path = tmp_path / "x.parquet"
            options = {"data_page_version": version, "compression": codec}
            pq.write_table(table, path, row_group_size=300, write_page_checksum=True, **options)
            for source in (path, io.BytesIO(path.read_bytes())):
                with BoundedParquet(source) as file:
                    assert file.read().equals(pq.read_table(path))
                    assert file.read_row_group(3, ["n", "lists"]).num_rows == 100
                    batches = list(file.iter_batches(200, columns=["n"]))
                    assert [b.num_rows for b in batches] == [200, 100] * 3 + [100]


def test_a_damaged_page_header_is_an_error():
    data = bytearray(_of_a_dictionary().getvalue())
    data[4:24] = b"\xff" * 20
    with pytest.raises(ValueError, match="header of a page is damaged"):
        BoundedParquet(io.BytesIO(bytes(data))).read()


def test_a_whole_file_is_looked_at(tmp_path):
    with BoundedParquet(_of_a_dictionary(), most=MOST) as file, pytest.raises(TooMuch):
        file.check()
    with BoundedParquet(_of_a_dictionary(), most=16 * MOST) as file:
        file.check()


@pytest.mark.parametrize("at_once", [0, 1 << 20])
def test_a_group_is_looked_at_in_one_read_or_header_by_header(at_once, tmp_path, monkeypatch):
    monkeypatch.setattr("glit.data.bounded_parquet._AT_ONCE", at_once)
    table = pa.table({"text": [f"{n:05}" * 40 for n in range(3000)], "n": range(3000)})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=1000, data_page_size=2000, write_batch_size=8,
                   use_dictionary=["n"])  # fmt: skip
    with BoundedParquet(path) as file, BoundedParquet(io.BytesIO(path.read_bytes())) as held:
        assert [file._sizes(i, None) for i in range(3)] == [held._sizes(i, None) for i in range(3)]
        text = file._sizes(2, ["text"])["text"]
    assert 1000 * 200 < text.total < 1000 * 220 and 2000 <= text.longest < 4000


def test_numbers_of_a_header_are_read_whatever_their_length():
    numbers = [0, -1, 1, 63, -64, 64, 8191, -8192, 8192, 2**31 - 1, -(2**31)]
    data = bytearray()
    for number in numbers:
        value = number << 1 if number >= 0 else (-number << 1) - 1
        data.append(0x15)  # the next field, a whole number
        while value > 127:
            data.append(value & 127 | 128)
            value >>= 7
        data.append(value)
    fields, end = _struct(bytes([*data, 0]), 0, 0)
    assert [*fields.values()] == numbers and end == len(data) + 1
