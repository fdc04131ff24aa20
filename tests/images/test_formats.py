"""Pictures that glit does not decode, and files whose names tell nothing."""

import io
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from glit.images import ImageError, decode, picture_frame
from glit.images.decoding import turned_format
from glit.images.formats import is_picture
from glit.images.jxl import jxl_size
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
    for module in ("pillow_heif", "pillow_jxl"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
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


def jxl(image: Image.Image, **options) -> bytes:
    pytest.importorskip("pillow_jxl")
    buffer = io.BytesIO()
    image.save(buffer, "JXL", **options)
    return buffer.getvalue()


def smooth(height: int = 64, width: int = 96) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([x * 2, y * 3, x + y], axis=-1).astype(np.uint8))


@pytest.mark.parametrize("use_container", [True, False])
def test_jpeg_xl_is_decoded_where_the_extra_is_installed(use_container):
    data = jxl(smooth(), lossless=True, use_container=use_container)
    assert (decode(data) == np.asarray(smooth())).all()
    assert picture_frame(data) == (96, 64, 1)
    with pytest.raises(ImageError, match="96x64 pixels, at most 100 allowed"):
        decode(data, max_pixels=100)
    for broken in (data[: len(data) // 2], data[:14], data[:40] + b"\xff" * 20 + data[60:]):
        with pytest.raises(ImageError) as found:
            decode(broken)
        assert found.value.reason == "corrupt"


def test_jpeg_xl_of_other_kinds():
    grey = smooth().convert("L")
    assert (decode(jxl(grey, lossless=True))[..., 1] == np.asarray(grey)).all()
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    assert (decode(jxl(clear, lossless=True)) == 255).all()
    deep = Image.fromarray((np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8))
    want = 255 * (1.055 * (63000 / 65535) ** (1 / 2.4) - 0.055)  # its profile says linear light
    assert abs(decode(jxl(deep, lossless=True))[-1, -1, 0] - want) <= 1
    exif = Image.Exif()
    exif[0x0112] = 6  # the codestream says how it is turned, and not EXIF (ISO/IEC 18181-2)
    assert decode(jxl(smooth(), exif=exif.tobytes())).shape == (64, 96, 3)


def test_a_jpeg_within_jpeg_xl_is_the_jpeg(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth().save(tmp_path / "a.jpg", quality=90, exif=exif)
    with Image.open(tmp_path / "a.jpg") as image:
        data = jxl(image, lossless_jpeg=True)
    plain = decode((tmp_path / "a.jpg").read_bytes())
    assert plain.shape == (96, 64, 3)
    assert np.abs(decode(data).astype(int) - plain).max() <= 1
    assert turned_format(data) == ("JXL", True)
    assert picture_frame(data) == (64, 96, 6)


def test_the_size_of_jpeg_xl_is_read_before_its_pixels():
    sizes = [(1, 1), (80, 80), (256, 8), (600, 450), (399, 17), (9000, 3), (160, 90), (120, 100)]
    for width, height in sizes:
        for use_container in (True, False):
            data = jxl(Image.new("RGB", (width, height)), effort=1, use_container=use_container)
            assert jxl_size(data) == (width, height)
    bomb = b"\xff\x0a" + ((3 << 1) | ((1 << 30) - 1) << 3 | 1 << 33).to_bytes(14, "little")
    with pytest.raises(ImageError, match="1073741824x1073741824 pixels"):
        decode(bomb)


def test_without_the_extra_the_drop_of_jpeg_xl_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pillow_jxl", None)
    with pytest.raises(ImageError, match="JPEG XL, which .*install glit's extra jxl"):
        decode(b"\xff\x0a" + bytes(60))


@pytest.mark.parametrize(("alpha", "shown"), [(0, 10), (128, 132), (255, 10)])
def test_a_bmp_whose_fourth_bytes_are_all_zero_is_opaque(alpha, shown):
    pixels = bytes((10, 10, 10, alpha)) * 400
    header = struct.pack("<IiiHHIIiiII", 108, 20, 20, 1, 32, 3, len(pixels), 2835, 2835, 0, 0)
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)  # BITMAPV4HEADER
    body = header + (masks + b"BGRs").ljust(108 - len(header), b"\0")
    start = 14 + len(body)
    data = struct.pack("<2sIHHI", b"BM", start + len(pixels), 0, 0, start) + body + pixels
    assert Image.open(io.BytesIO(data)).mode == "RGBA"
    assert int(decode(data)[0, 0, 0]) == shown
