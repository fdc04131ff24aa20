"""Members of ZIP archives, as zipfile writes them, and archives that are made to harm."""

from __future__ import annotations

import io
import stat
import struct
import tracemalloc
import zipfile

import pytest

from glit.inputs.archive import ArchiveShard, Member
from glit.inputs.zip import MOST_BYTES, scan_zip, zip_shard
from glit.storage.members import DAMAGED, ESCAPES, LOCKED, NO_FILE, PACKED, REFUSED


def packed(members, kind=zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def scan(data: bytes) -> list[Member]:
    return list(scan_zip(io.BytesIO(data), len(data)))


def shard(data: bytes) -> ArchiveShard:
    return zip_shard(lambda start, end: data[start:end], scan(data))


class Pipe(io.BytesIO):
    """A file that cannot be gone back in, so that zipfile writes sizes behind the data."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_members_are_found_and_read(kind):
    members = [
        ("x.jpg", b"1" * 700), ("a/ü.png", bytes(range(256)) * 300), ("./z.png", b""),
        ("win\\y.png", b"2"), ("x.jpg", b"33"), ("x.txt", b"A cat."), ("__MACOSX/._x.jpg", b"4"),
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = packed(members, kind)
    for whole in (data, b"#!/bin/sh\n" * 9 + data):  # one that unpacks itself
        found = shard(whole)
        names = ["x.jpg", "a/ü.png", "z.png", "win/y.png", "x#2.jpg", "x.txt", "__MACOSX/._x.jpg"]
        assert [member.name for member in scan(whole)] == names
        assert [found.read(name) for name in names] == [data for _, data in members]
        assert found.head(scan(whole)[1], 5) == bytes(range(5))


def test_sizes_behind_the_data_and_archives_of_64_bits_are_read():
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", b"1" * 999)
        with archive.open("b.png", "w", force_zip64=True) as file:
            file.write(b"22")
    found = shard(pipe.getvalue())
    assert (found.read("a.png"), found.read("b.png")) == (b"1" * 999, b"22")


def test_what_leads_out_and_what_is_no_plain_file_is_refused():
    link = zipfile.ZipInfo("link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    bad = zipfile.ZipInfo("bzip2.png")
    bad.compress_type = zipfile.ZIP_BZIP2
    members = [
        ("../out.png", b"1"), ("/etc/x.png", b"1"), ("a\\..\\..\\y.png", b"1"), (link, b"/etc/passwd"),
        (bad, b"1"), ("folder/", b""), ("ok.png", b"1"),
    ]  # fmt: skip
    data = packed(members, zipfile.ZIP_STORED)
    assert {member.name: member.size for member in scan(data)} == {
        "../out.png": ESCAPES, "/etc/x.png": ESCAPES, "a/../../y.png": ESCAPES, "link.png": NO_FILE,
        "bzip2.png": LOCKED, "ok.png": 1,
    }  # fmt: skip
    with pytest.raises(FileNotFoundError):
        shard(data).read("../out.png")
    assert {LOCKED, PACKED} <= REFUSED.keys()


def changed(data: bytes, at: int, form: str, *values: int) -> bytes:
    """With other numbers at a place of the one entry of its directory."""
    entry = data.index(b"PK\1\2")
    found = bytearray(data)
    struct.pack_into(form, found, entry + at, *values)
    return bytes(found)


def test_an_encrypted_member_is_refused():
    [member] = scan(changed(packed([("a.png", b"1")]), 8, "<H", 1))
    assert member.size == LOCKED


def test_a_member_that_unpacks_to_far_more_is_refused_without_unpacking():
    white = bytes(70 << 20)
    bomb = packed([("bomb.png", white), ("white.bmp", white[: 5 << 20]), ("ok.png", b"1")])
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    found = {member.name: member.size for member in scan(bomb)}
    assert found == {"bomb.png": PACKED, "white.bmp": 5 << 20, "ok.png": 1}
    with pytest.raises(FileNotFoundError):
        shard(bomb).read("bomb.png")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    huge = changed(packed([("a.png", bytes(9))]), 24, "<I", MOST_BYTES + 1)
    assert scan(huge)[0].size == PACKED


def test_a_member_that_is_larger_than_it_says_is_cut_off():
    lies = changed(packed([("a.png", bytes(9 << 20))]), 24, "<I", 1000)
    found = shard(lies)
    tracemalloc.start()
    with pytest.raises(OSError, match="not those that the directory states"):
        found.read("a.png")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_members_that_share_bytes_are_refused():
    """As in the archives of D. Fifield, A better zip bomb (WOOT 2019)."""
    data = packed([("a.png", bytes(9999))])
    entry, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    one, number = data[entry:end], 1000
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, number, number, number * len(one), entry, 0)
    found = scan(data[:entry] + one * number + tail)
    assert [member.size for member in found] == [9999] + [DAMAGED] * (number - 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"no archive" * 100,
        lambda data: data[:-30],
        lambda data: data[: data.index(b"PK\1\2")] + b"x" * 40 + data[data.index(b"PK\5\6") :],
        lambda data: data[:-22] + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2**31, 0, 0),
    ],
)
def test_a_damaged_directory_is_told(damage):
    data = damage(packed([("a.png", b"a" * 1000)]))
    assert [(member.name, member.size) for member in scan(data)] == [("", DAMAGED)]


def test_a_member_without_a_name_is_damage():
    data = packed([("a", b"1")])
    entry = data.index(b"PK\1\2")
    unnamed = bytearray(data[: entry + 46] + data[entry + 47 :])
    struct.pack_into("<H", unnamed, entry + 28, 0)
    struct.pack_into("<I", unnamed, len(unnamed) - 10, 46)
    assert [(member.name, member.size) for member in scan(bytes(unnamed))] == [("", DAMAGED)]


def test_damaged_members_are_errors_and_no_pictures():
    data = packed([("a.png", bytes(range(256)) * 9)])
    broken = data[:40] + b"\xff" * 20 + data[60:]
    with pytest.raises(OSError, match=r"a\.png: damaged"):
        shard(broken).read("a.png")
    moved = changed(data, 42, "<I", 7)
    with pytest.raises(OSError, match="no member there"):
        shard(moved).read("a.png")
    outside = changed(data, 42, "<I", 2**31)
    assert scan(outside)[0].size == DAMAGED
