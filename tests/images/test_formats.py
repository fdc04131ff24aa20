"""Pictures that glit does not decode, and files whose names tell nothing."""

import io
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from glit.images import ImageError, decode
from glit.images.formats import is_picture
from glit.inputs.source import entries, find_source

OTHERS = {
    "HEIF": bytes(3) + b"\x18ftypheic" + bytes(60),
    "JPEG XL": b"\xff\x0a" + bytes(60),
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(60),
    "Canon RAW": bytes(3) + b"\x18ftypcrx " + bytes(60),
    "Fujifilm RAW": b"FUJIFILMCCD-RAW 0201" + bytes(60),
    "Photoshop": b"8BPS\0\1" + bytes(60),
    "Netpbm": b"P6\n2 2\n255\n" + bytes(12),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_picture_of_another_format_is_called_by_its_name(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    assert is_picture(OTHERS[name][:32])
    with pytest.raises(ImageError, match=f"^{name}, which glit does not decode") as caught:
        decode(OTHERS[name])
    assert caught.value.reason == "unsupported_format"


@pytest.mark.parametrize("tags", [{50706: b"\1\4\0\0"}, {254: 1, 330: 8}])
def test_the_thumbnail_of_a_raw_file_is_no_picture(tags):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(buffer, "TIFF", tiffinfo=tags)
    with pytest.raises(ImageError, match="^RAW"):
        decode(buffer.getvalue())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"])
def test_the_first_bytes_of_what_is_decoded(kind):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(buffer, kind)
    assert is_picture(buffer.getvalue()[:32])


def test_texts_are_no_pictures():
    for text in (
        b"",
        b"BM",
        b"BMW is a car of many doors and wheels",
        b"P6",
        b"II",
        b"{}",
        b"<html>",
    ):
        assert not is_picture(text)


def test_members_of_tars_are_listed_by_suffix_or_by_first_bytes(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(buffer, "JPEG")
    members = {
        "a.jpg": buffer.getvalue(), "b.heic": OTHERS["HEIF"], "c": buffer.getvalue(),
        "d.jpg_large": buffer.getvalue(), "e.cls": b"3", "f": b"a text", "g.txt": b"caption",
    }  # fmt: skip
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    found = [each.path for each in entries(find_source(str(tmp_path)))]
    assert found == [f"x.tar::{name}" for name in ("a.jpg", "b.heic", "c", "d.jpg_large")]


def test_an_undecoded_picture_beside_shards_hides_them_not(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo("a.jpg")
        tar.addfile(info, io.BytesIO())
    (tmp_path / "cover.heic").write_bytes(OTHERS["HEIF"])
    found = sorted(each.path for each in entries(find_source(str(tmp_path))))
    assert found == ["cover.heic", "x.tar::a.jpg"]


def test_heif_is_decoded_where_the_extra_is_installed():
    heif = pytest.importorskip("pillow_heif")
    y, x = np.mgrid[:64, :96]
    image = Image.fromarray(np.stack([x * 2, y * 3, x + y], axis=-1).astype(np.uint8))
    buffer = io.BytesIO()
    heif.from_pillow(image).save(buffer, quality=95)
    data = buffer.getvalue()
    assert np.abs(decode(data).astype(int) - np.asarray(image)).mean() < 3
    with pytest.raises(ImageError, match="at most 100 allowed"):
        decode(data, max_pixels=100)
    with pytest.raises(ImageError):
        decode(data[: len(data) // 2])
    assert struct.unpack(">I", data[:4])[0] < 64
