"""Images and captions of Parquet files, by rows."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glit.errors import InputError
from glit.inputs import table
from glit.inputs.table import TableShard, member

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def written(columns, *, group=2) -> io.BytesIO:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=group)
    return buffer


ROWS = [{"bytes": bytes([n]) * 9, "path": f"{n}.png"} for n in range(5)]


def test_rows_are_images_and_their_captions():
    shard = TableShard(
        written({"image": pa.array([*ROWS[:4], None], IMAGE), "text": ["a", "ü", None, "d", "e"]}),
        "x.parquet",
        size=1000,
    )
    assert (shard.num_rows, shard.has_images) == (5, True)
    assert [shard.read(member(n)) for n in (3, 0, 2, 1)] == [bytes([n]) * 9 for n in (3, 0, 2, 1)]
    assert shard.read("000000001.txt") == "ü".encode()
    for missing in ("000000004", "000000002.txt", "000000005", "5", "000000001.json"):
        with pytest.raises(FileNotFoundError):
            shard.read(missing)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_column_of_bytes(kind):
    shard = TableShard(
        written({"n": [1], "picture": pa.array([b"12"], kind)}), "x.parquet", size=1000
    )
    assert shard.read(member(0)) == b"12"
    with pytest.raises(FileNotFoundError):
        shard.read("000000000.txt")


def test_a_column_named_image_goes_before_others():
    columns = {"a": [b"1"], "image": [b"2"], "mask": [b"3"]}
    assert TableShard(written(columns), "x.parquet", size=1000).read(member(0)) == b"2"
    del columns["image"]
    with pytest.raises(
        InputError, match=r"x.parquet: several columns may hold the images \(a, mask\)"
    ):
        TableShard(written(columns), "x.parquet", size=1000)
    assert not TableShard(written({"path": ["a.png"]}), "x.parquet", size=1000).has_images


def test_a_damaged_file_and_a_damaged_page_are_errors_of_their_own():
    with pytest.raises(OSError, match="not a readable Parquet file"):
        TableShard(io.BytesIO(b"PAR1 no PAR1"), "x.parquet", size=1000)
    with pytest.raises(OSError, match="5 rows in 4 bytes"):
        TableShard(written({"image": pa.array(ROWS, IMAGE)}), "x.parquet", size=4)
    data = bytearray(written({"image": pa.array(ROWS, IMAGE)}).getvalue())
    data[4:40] = b"\xff" * 36
    shard = TableShard(io.BytesIO(bytes(data)), "x.parquet", size=1000)
    with pytest.raises(OSError, match="row group 0 of x.parquet is damaged"):
        shard.read(member(0))
    assert shard.read(member(4)) == bytes([4]) * 9


def test_a_row_group_that_memory_does_not_hold_is_refused(monkeypatch):
    monkeypatch.setattr(table, "IMAGES_BYTES", 20)
    with pytest.raises(InputError, match="row_group_size=100"):
        TableShard(written({"image": pa.array(ROWS, IMAGE)}), "x.parquet", size=1000)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (pa.binary_view(), pa.string_view()),
        (pa.large_binary(), pa.large_string()),
        (pa.dictionary(pa.int32(), pa.binary()), pa.dictionary(pa.int32(), pa.string())),
        (pa.struct([("bytes", pa.binary_view())]), pa.string_view()),
        (pa.struct([("bytes", pa.large_binary()), ("path", pa.string())]), pa.large_string()),
    ],
)
def test_columns_of_further_types(image, text):
    values = [b"12", b"34", b"12"]
    if pa.types.is_struct(image):
        values = [{"bytes": value} for value in values]
        column = pa.array(values, image)
    elif pa.types.is_dictionary(image):
        column = pa.array(values).dictionary_encode()
    else:
        column = pa.array(values, image)
    words = pa.array(["a", "b", "a"])
    words = words.dictionary_encode() if pa.types.is_dictionary(text) else words.cast(text)
    buffer = written({"image": column, "caption": words}, group=3)
    shard = TableShard(buffer, "x.parquet", size=9999)
    assert [shard.read(member(n)) for n in range(3)] == [b"12", b"34", b"12"]
    assert [shard.read(f"{member(n)}.txt") for n in range(3)] == [b"a", b"b", b"a"]


@pytest.mark.parametrize("kind", [pa.list_(IMAGE), pa.large_list(pa.binary()), pa.list_(IMAGE, 1)])
def test_several_images_a_row_are_refused_by_their_column(kind):
    value = {"bytes": b"1", "path": ""} if pa.types.is_struct(kind.value_type) else b"1"
    images = pa.array([[value]], kind)
    for rest in ({}, {"thumb": [b"2"]}):
        with pytest.raises(InputError, match=r"x.parquet: the column 'images' holds several imag"):
            TableShard(written({"images": images, **rest}), "x.parquet", size=9999)
    shard = TableShard(written({"images": images, "image": [b"2"]}), "x.parquet", size=9999)
    assert shard.read(member(0)) == b"2"


def test_a_row_group_that_fills_memory_is_decoded_once(monkeypatch):
    """Some kilobytes by the footer, 10 MB when decoded; every row of it is refused."""
    monkeypatch.setattr("glit.data.bounded_parquet.IMAGES_BYTES", 1 << 20)
    images = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), pa.array([b"x" * 10_000]))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"image": images}), buffer, store_schema=False, compression="zstd")
    shard, decoded = TableShard(buffer, "x.parquet", size=9999), []
    real = shard._file.read_row_group
    monkeypatch.setattr(
        shard._file, "read_row_group", lambda *a, **k: (decoded.append(a), real(*a, **k))[1]
    )
    for row in (0, 1, 999):
        with pytest.raises(OSError, match=r"x.parquet: row group 0 decodes to \d MB"):
            shard.read(member(row))
    assert len(decoded) == 1
