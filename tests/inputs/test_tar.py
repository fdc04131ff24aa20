"""Where members of a tar lie, as tarfile itself reads them, and what damage does."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile

import pytest
from webdataset.tariterators import base_plus_ext

from glit.inputs.archive import ArchiveShard, sample_key
from glit.inputs.tar import scan, tar_shard
from glit.storage.members import DAMAGED, ESCAPES, NO_FILE, REFUSED


def tar(members, *, form=tarfile.PAX_FORMAT, end=True) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        length = archive.offset
    return buffer.getvalue() if end else buffer.getvalue()[:length]


def shard(data: bytes) -> ArchiveShard:
    return tar_shard(lambda start, end: data[start:end], list(scan(io.BytesIO(data), len(data))))


LONG = "a/" * 90 + "long-name.png"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("end", [True, False])
def test_members_are_found_and_read_by_ranges(form, end):
    members = [("x.jpg", b"1" * 700), (LONG, b""), ("ü/y.png", b"2"), ("./z.png", b"3")]
    data = tar(members, form=form, end=end)
    found = list(scan(io.BytesIO(data), len(data)))
    assert [m.name for m in found] == ["x.jpg", LONG, "ü/y.png", "z.png"]
    assert [data[m.offset : m.offset + m.size] for m in found] == [d for _, d in members]
    assert shard(data).read("ü/y.png") == b"2"
    with pytest.raises(FileNotFoundError):
        shard(data).read("x.png")


def test_of_members_with_one_name_each_is_kept():
    data = tar([("a.png", b"1"), ("a.png", b"22"), ("b", b""), ("b", b"3")])
    found = shard(data)
    assert [found.read(n) for n in ("a.png", "a#2.png", "b", "b#2")] == [b"1", b"22", b"", b"3"]


def test_what_leads_out_and_what_is_no_file_is_refused():
    link = tarfile.TarInfo("link.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard = tarfile.TarInfo("hard.png")
    hard.type, hard.linkname = tarfile.LNKTYPE, "../../x"
    data = tar(
        [("../out.png", b"1"), ("/etc/x.png", b"1"), (link, b""), (hard, b""), ("ok.png", b"1")]
    )
    found = {m.name: m.size for m in scan(io.BytesIO(data), len(data))}
    assert found == {
        "../out.png": ESCAPES, "/etc/x.png": ESCAPES, "link.png": NO_FILE, "hard.png": NO_FILE,
        "ok.png": 1,
    }  # fmt: skip
    with pytest.raises(FileNotFoundError):
        shard(data).read("../out.png")
    assert {ESCAPES, NO_FILE, DAMAGED} <= REFUSED.keys()


def resized(header: bytes) -> bytes:
    """A header whose member ends 4,096 bytes before it begins."""
    changed = bytearray(header)
    changed[124:136] = b"\xff" * 10 + b"\xf0\x00"
    total = sum(changed[:148]) + 8 * 32 + sum(changed[156:])
    changed[148:156] = b"%06o\0 " % total
    return bytes(changed)


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (lambda data: data[:2500], ["a.png", "b.png"]),  # within the data of b
        (lambda data: data[: 512 + 1024 + 100], ["a.png", ""]),  # within a header
        (lambda data: data[:1546] + b"\xff" * 9 + data[1555:], ["a.png", ""]),  # a header
        (lambda data: data[:1536] + resized(data[1536:2048]) + data[2048:], ["a.png", ""]),
        (lambda data: b"no archive" * 100, [""]),
        (lambda data: b"", [""]),
    ],
)
def test_a_damaged_archive_gives_what_lies_before_and_says_so(damage, names):
    data = damage(tar([("a.png", b"a" * 1000), ("b.png", b"b" * 1000), ("c.png", b"c" * 10)]))
    found = list(scan(io.BytesIO(data), len(data)))
    whole = {m.name: data[m.offset : m.offset + m.size] for m in found if m.size >= 0}
    assert whole.get("a.png", b"a" * 1000) == b"a" * 1000
    assert [m.name for m in found] == names
    assert found[-1].size == DAMAGED
    assert "c.png" not in whole


def test_a_caption_may_be_in_json():
    rows = {"caption": "One.", "text": "Two."}
    data = tar(
        [
            ("a.json", json.dumps(rows).encode()), ("b.json", b'{"text": "Two."}'),
            ("c.json", b"{"), ("c.txt", b"Three."), ("d.json", b"[1]"), ("e.json", b'{"caption": 1}'),
        ]
    )  # fmt: skip
    found = shard(data)
    assert [found.read(f"{key}.txt") for key in "abc"] == [b"One.", b"Two.", b"Three."]
    for key in "de":
        with pytest.raises(FileNotFoundError):
            found.read(f"{key}.txt")


def test_an_archive_that_became_shorter_is_an_error():
    data = tar([("a.png", b"1" * 100)])
    members = list(scan(io.BytesIO(data), len(data)))
    with pytest.raises(OSError, match="ends within it"):
        tar_shard(lambda start, end: data[start : end - 1], members).read("a.png")


def test_archives_one_behind_the_other_are_all_read():
    first = tar([("a.jpg", b"1" * 700), ("b.jpg", b"2")])
    second = tar([("c.jpg", b"3"), ("a.jpg", b"4")])
    data = first + second + tar([("d.jpg", b"5" * 513)], end=False)
    found = list(scan(io.BytesIO(data), len(data)))
    assert [m.name for m in found] == ["a.jpg", "b.jpg", "c.jpg", "a#2.jpg", "d.jpg"]
    assert [shard(data).read(m.name) for m in found] == [b"1" * 700, b"2", b"3", b"4", b"5" * 513]


@pytest.mark.parametrize(
    "tail",
    [b"garbage", b"x" * 1024, tar([("c.jpg", b"3" * 900)])[:700], b"\x1f\x8b" + b"z" * 600],
)
def test_what_follows_the_end_and_is_no_archive_is_told(tail):
    data = tar([("a.jpg", b"1")]) + tail
    sizes = [m.size for m in scan(io.BytesIO(data), len(data))]
    assert sizes[0] == 1 and sizes[-1] == DAMAGED


def test_zeros_after_the_end_are_nothing():
    data = tar([("a.jpg", b"1")]) + bytes(700_001)
    assert [m.size for m in scan(io.BytesIO(data), len(data))] == [1]


def test_an_archive_of_zeros_is_empty():
    assert list(scan(io.BytesIO(bytes(10240)), 10240)) == []


def test_a_hard_link_has_the_bytes_of_the_member_before_it(tmp_path):
    """As GNU tar writes it, and as it is unpacked."""
    (tmp_path / "a.jpg").write_bytes(b"1" * 700)
    (tmp_path / "b.jpg").hardlink_to(tmp_path / "a.jpg")
    (tmp_path / "c.jpg").hardlink_to(tmp_path / "a.jpg")
    command = ["tar", "-C", tmp_path, "-cf", tmp_path / "x.tar", "./a.jpg", "./b.jpg", "./c.jpg"]
    subprocess.run(command, check=True)
    data = (tmp_path / "x.tar").read_bytes()
    with tarfile.open(tmp_path / "x.tar") as judge:
        assert [member.islnk() for member in judge] == [False, True, True]
    found = shard(data)
    assert [found.read(f"{name}.jpg") for name in "abc"] == [b"1" * 700] * 3


def test_a_hard_link_to_what_is_not_before_it_is_refused():
    def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.LNKTYPE, target
        return info, b""

    soft = tarfile.TarInfo("soft.png")
    soft.type, soft.linkname = tarfile.SYMTYPE, "a.png"
    data = tar(
        [
            link("early.png", "a.png"), link("own.png", "own.png"), ("a.png", b"1"), (soft, b""),
            ("a.png", b"22"), link("late.png", "./a.png"), link("of-soft.png", "soft.png"),
            link("chain.png", "late.png"), link("/x.png", "a.png"), link("up.png", "../a.png"),
        ]
    )  # fmt: skip
    sizes = {member.name: member.size for member in scan(io.BytesIO(data), len(data))}
    assert sizes == {
        "early.png": NO_FILE, "own.png": NO_FILE, "a.png": 1, "soft.png": NO_FILE, "a#2.png": 2,
        "late.png": 2, "of-soft.png": NO_FILE, "chain.png": 2, "/x.png": ESCAPES, "up.png": NO_FILE,
    }  # fmt: skip
    assert shard(data).read("chain.png") == b"22"


def test_the_key_of_a_sample_ends_at_the_first_dot_as_in_webdataset():
    members = [
        ("a/0.left.jpg", b"1"), ("a/0.txt", b"Of 0."), ("1.v2.png", b"1"), ("1.json", b'{"text": "Of 1."}'),
        ("2.a.jpg", b"1"), ("2.b.jpg", b"1"), ("2.txt", b"Of which?"), ("2.a.txt", b"Of a."),
        ("3.jpg", b"1"), ("3.seg.png", b"1"), ("3.txt", b"Of 3."),
    ]  # fmt: skip
    for name, _ in members:
        assert sample_key(name) == base_plus_ext(name)[0]
    found = shard(tar(members))
    beside = ["a/0.left.txt", "1.v2.txt", "2.a.txt", "3.txt"]
    assert [found.read(name) for name in beside] == [b"Of 0.", b"Of 1.", b"Of a.", b"Of 3."]
    for name in ("2.b.txt", "3.seg.txt", "0.left.txt"):  # of which picture, nothing says
        with pytest.raises(FileNotFoundError):
            found.read(name)
