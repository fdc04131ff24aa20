"""Names of members in other encodings and letter cases."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from building import counts, png, run_build

from glit.inputs.source import entries, find_source


def zip_with(path: Path, raw: bytes, *, extra: bytes = b"") -> Path:
    """An archive with a picture, of which the name is these bytes."""
    info = zipfile.ZipInfo("x" * len(raw))
    info.extra = extra
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, png())
    path.write_bytes(path.read_bytes().replace(b"x" * len(raw), raw))
    return path


def unicode_field(name: str, raw: bytes) -> bytes:
    content = b"\1" + struct.pack("<I", zlib.crc32(raw)) + name.encode()
    return struct.pack("<HH", 0x7075, len(content)) + content


def member_of(path: Path) -> str:
    [entry] = entries(find_source(str(path)))
    return entry.path.rpartition("::")[2]


CATS = "\u7167\u7247/\u732b.png"


def test_a_name_of_info_zips_field_is_taken_if_it_is_of_the_name(tmp_path):
    raw = CATS.encode("gbk")
    assert member_of(zip_with(tmp_path / "a.zip", raw, extra=unicode_field(CATS, raw))) == CATS
    other = unicode_field(CATS, b"another")
    with pytest.warns(UserWarning, match="1 names are in a code page"):
        assert member_of(zip_with(tmp_path / "b.zip", raw, extra=other)) != CATS


def test_utf8_without_the_flag_is_read(tmp_path):
    assert member_of(zip_with(tmp_path / "a.zip", CATS.encode())) == CATS


def test_a_backslash_inside_a_character_cuts_no_path(tmp_path):
    raw = "\u8868\u80fd.png".encode("shift-jis")
    assert b"\\" in raw
    with pytest.warns(UserWarning, match=r"a\.zip: 1 names .*; pack it again with names in UTF-8"):
        assert "/" not in member_of(zip_with(tmp_path / "a.zip", raw))


def test_captions_with_a_suffix_in_capitals(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, (picture, text) in enumerate((("0.PNG", "0.TXT"), ("1.png", "1.txt"))):
            for name, data in ((picture, png(seed=number)), (text, b"A red cup.")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "2.JPG").write_bytes(png(seed=2))
    (tmp_path / "folder" / "2.Txt").write_text("A blue cup.")
    for source, number in (("a.tar", 2), ("folder", 1)):
        manifest = run_build(
            tmp_path / source, tmp_path / f"out-{number}", recipe="captions-only",
            overrides=["caption.backend=sidecar"],
        )  # fmt: skip
        assert counts(manifest) == (number, number, 0, 0)
