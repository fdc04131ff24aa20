import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from glit.images import ImageError, decode, encode_smaller, perceptual_hash


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


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind, orientation):
    image = gradient()
    exif = image.getexif()
    exif[0x0112] = orientation
    data = encode(image, kind, exif=exif)
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert np.array_equal(decode(data), np.asarray(wanted))


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


def test_perceptual_hash_is_near_for_the_recompressed_and_far_for_another():
    image = gradient(size=(120, 90))
    a, b = decode(encode(image, "PNG")), decode(encode(image, "JPEG", quality=80))
    mask = (1 << 64) - 1
    distance = ((perceptual_hash(a) ^ perceptual_hash(b)) & mask).bit_count()
    other = ((perceptual_hash(a) ^ perceptual_hash(a[:, ::-1])) & mask).bit_count()
    assert distance <= 4 < other


def test_encode_smaller_keeps_the_aspect():
    data, width, height = encode_smaller(np.asarray(gradient(size=(600, 400))), max_side=300)
    assert (width, height) == (300, 200)
    assert decode(data).shape == (200, 300, 3)
