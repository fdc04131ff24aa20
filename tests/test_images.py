import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from glit.errors import UserError
from glit.images import ImageError, decode, decoding, encode_smaller, picture_frame, upright_file


def encode(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(mode: str = "RGB", size=(60, 40)) -> Image.Image:
    y, x = np.mgrid[: size[1], : size[0]]
    rgb = np.stack([x * 4, y * 6, (x + y) * 2], axis=-1).astype(np.uint8)
    return Image.fromarray(rgb).convert(mode)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_every_format_gives_what_pillow_gives(kind):
    data = encode(gradient(), kind)
    wanted = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(decode(data), wanted)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {}),
        ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0, "comment": b"x" * 300}),
        ("L", {}),
        ("CMYK", {}),
        ("RGB", {"keep_rgb": True}),
        ("RGB", {"xmp": b'<x xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'}),
    ],
)
def test_jpegs_of_every_kind(mode, options):
    data = encode(gradient(mode, size=(50, 30)), "JPEG", **options)
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert np.array_equal(decode(data), np.asarray(wanted))
    with pytest.raises(ImageError, match=r"(50x30|30x50) pixels, at most 1499 allowed"):
        decode(data, max_pixels=1499)


@pytest.mark.parametrize("kept", [3, 11, 30, 170, 600])
def test_a_jpeg_that_is_cut_short_is_refused(kept):
    data = encode(gradient(), "JPEG")
    assert len(data) > 700
    with pytest.raises(ImageError):
        decode(data[:kept])


def test_alpha_is_laid_over_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert decode(encode(image, "PNG")).tolist() == [[[255, 255, 255]] * 4] * 4
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    assert decode(encode(half, "PNG"))[0, 0].tolist() == [127, 127, 127]


def test_transparent_palette_is_laid_over_white():
    image = Image.new("P", (4, 4), 0)
    image.putpalette([10, 20, 30] + [0] * 765)
    assert decode(encode(image, "PNG", transparency=0))[0, 0].tolist() == [255, 255, 255]
    assert decode(encode(image, "PNG"))[0, 0].tolist() == [10, 20, 30]


def test_sixteen_bit_grey_keeps_its_range():
    values = np.array([[0, 32768, 65535]], dtype=np.uint16)
    pixels = decode(encode(Image.fromarray(values), "PNG"))
    assert pixels[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]


def test_cmyk_and_grey_become_rgb():
    cmyk = decode(encode(gradient("CMYK"), "JPEG", quality=95))
    assert cmyk.shape == (40, 60, 3)
    assert np.abs(cmyk.astype(int) - np.asarray(gradient()).astype(int)).mean() < 12
    grey = decode(encode(gradient("L"), "JPEG"))
    assert (grey[..., 0] == grey[..., 1]).all()


def test_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data)[0, 0].tolist() == [255, 0, 0]


def bad_png_chunk() -> bytes:
    data = bytearray(encode(gradient(), "PNG"))
    start = data.index(b"IDAT") + 20
    data[start : start + 8] = b"\0" * 8
    return bytes(data)


def bomb() -> bytes:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    signature = b"\x89PNG\r\n\x1a\n"
    return (
        signature
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


BAD = {
    "empty_file": b"",
    "not_an_image": b"<html>not here</html>",
    "corrupt": encode(gradient(size=(600, 400)), "JPEG")[:3000],
    "too_large": bomb(),
    "unsupported_mode": encode(Image.fromarray(np.ones((20, 20), np.float32)), "TIFF"),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_files_carry_their_reason(reason):
    with pytest.raises(ImageError) as caught:
        decode(BAD[reason], max_pixels=10_000_000)
    assert caught.value.reason == reason


def test_decoding_does_not_mind_who_replaces_pillows_open(monkeypatch):
    """ultralytics does, with a function that tries to install a package for unknown bytes."""
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("the replaced open was called"))
    with pytest.raises(ImageError, match="no decoder"):
        decode(b"not an image")


def test_corrupt_png_chunk():
    with pytest.raises(ImageError) as caught:
        decode(bad_png_chunk())
    assert caught.value.reason == "corrupt"


def test_encode_smaller_keeps_the_aspect():
    data, width, height = encode_smaller(np.asarray(gradient(size=(600, 400))), max_side=300)
    assert (width, height) == (300, 200)
    assert decode(data).shape == (200, 300, 3)


ORIENTED = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "MPO"]


def oriented(kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    more = {"save_all": True, "append_images": [gradient()]} if kind == "MPO" else {}
    return encode(gradient(), kind, exif=exif, **more)


@pytest.mark.parametrize("kind", ORIENTED)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_every_format_is_that_of_exif_transpose(kind, orientation):
    data = oriented(kind, orientation)
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert np.array_equal(decode(data), wanted)
    upright, suffix = upright_file(data)
    shown = Image.open(io.BytesIO(upright))
    assert shown.getexif().get(0x0112, 1) == 1
    assert shown.size == wanted.shape[1::-1]
    if suffix == ".png":
        assert np.array_equal(np.asarray(shown.convert("RGB")), wanted)


@pytest.mark.parametrize("compression", ["tiff_lzw", "jpeg", "packbits", None])
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_turned_tiff_is_turned_once(compression, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(gradient(), "TIFF", exif=exif, compression=compression)
    stored = np.asarray(gradient())
    wanted = {3: stored[::-1, ::-1], 6: np.rot90(stored, -1), 8: np.rot90(stored)}[orientation]
    assert decode(data).shape == wanted.shape
    assert np.abs(decode(data).astype(int) - wanted).mean() < 12


@pytest.mark.parametrize(
    "data",
    [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
        encode(gradient(), "PPM"), encode(gradient(), "ICO"), encode(gradient(), "TGA"),
        encode(gradient(), "JPEG2000"),
    ],
    ids=["eps", "ppm", "ico", "tga", "jpeg2000"],
)  # fmt: skip
def test_other_formats_of_pillow_are_no_images_here(data):
    with pytest.raises(ImageError) as caught:
        decode(data)
    is_known = data[:2] == b"P6" or data[4:8] == b"jP  "
    assert caught.value.reason == ("unsupported_format" if is_known else "not_an_image")


def test_the_limit_of_pixels_holds_unasked_and_can_be_set(monkeypatch):
    with pytest.raises(ImageError, match="60000x60000 pixels, at most 150000000 allowed"):
        decode(bomb())
    monkeypatch.setenv("GLIT_MAX_PIXELS", "2399")
    with pytest.raises(ImageError, match="60x40 pixels, at most 2399 allowed"):
        decode(encode(gradient(), "PNG"))
    monkeypatch.setenv("GLIT_MAX_PIXELS", "2400")
    assert decode(encode(gradient(), "PNG")).shape == (40, 60, 3)
    monkeypatch.setenv("GLIT_MAX_PIXELS", "many")
    with pytest.raises(UserError, match="GLIT_MAX_PIXELS=many: want a positive number of pixels"):
        decode(encode(gradient(), "PNG"))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "CMYK", "P", "L", "1"])
def test_converting_by_strips_changes_no_pixel(mode, monkeypatch):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    image = gradient("L").convert(mode) if mode in ("LA", "1") else gradient(mode)
    if "A" in mode:
        image.putalpha(gradient("L"))
    data = encode(image, kind)
    at_once = decode(data)
    monkeypatch.setattr("glit.images.colour.STRIP_PIXELS", 7 * 60)
    assert np.array_equal(decode(data), at_once)


def test_the_size_in_a_header(tmp_path):
    """Bombs too; formats that start programs are no images."""
    (tmp_path / "bomb.png").write_bytes(bomb())
    assert picture_frame(tmp_path / "bomb.png") == (60_000, 60_000, 1)
    (tmp_path / "x.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(ImageError, match="no decoder"):
        picture_frame(tmp_path / "x.jpg")


def test_a_thread_that_decodes_silences_nobody_elses_warnings():
    with decoding._PILLOW.as_wanted_here():
        with pytest.warns(UserWarning, match="of another thread"):
            warnings.warn("of another thread", stacklevel=1)
        warnings.warn_explicit("odd EXIF", UserWarning, "x.py", 1, module="PIL.TiffImagePlugin")
