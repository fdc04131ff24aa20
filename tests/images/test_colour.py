"""Depths, transparency and colour profiles."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from glit.images import ImageError, decode, encode_smaller, upright_file


def tiff(
    values: np.ndarray, *, photometric: int = 1, order: str = "<", bits: int = 0, extra: int = -1,
    pixels: bytes = b"",
) -> bytes:  # fmt: skip
    """An uncompressed TIFF of one strip.

    Args:
        values: [height, width] or [height, width, channels] of whole numbers.
        photometric: 0 for grey whose 0 is white, 1 for grey, 2 for RGB.
        order: ``<`` or ``>``.
        bits: of a sample, where its type does not tell.
        extra: kind of the fourth channel; -1 for none.
        pixels: in place of the values, packed.
    """
    channels = values.shape[2] if values.ndim == 3 else 1
    data = pixels or values.astype(values.dtype.newbyteorder(order)).tobytes()
    bits, is_signed = bits or 8 * values.dtype.itemsize, values.dtype.kind == "i"
    head = 8 + len(data)
    sizes = struct.pack(f"{order}{channels}H", *[bits] * channels)
    formats = struct.pack(f"{order}{channels}H", *[2 if is_signed else 1] * channels)
    height, width = values.shape[:2]
    tags = [(256, width), (257, height), (258, sizes), (259, 1), (262, photometric), (273, 8),
            (277, channels), (278, height), (279, len(data)), (284, 1)]  # fmt: skip
    tags += [(338, extra)] * (extra >= 0) + [(339, formats)]
    entries, more, after = b"", b"", head + 2 + 12 * len(tags) + 4
    for tag, value in tags:
        if isinstance(value, int):
            entries += struct.pack(f"{order}HHII", tag, 4, 1, value)
            continue
        if len(value) > 4:
            place = struct.pack(f"{order}I", after + len(more))
            more += value
        else:
            place = value.ljust(4, b"\0")
        entries += struct.pack(f"{order}HHI", tag, 3, len(value) // 2) + place
    mark = b"II*\0" if order == "<" else b"MM\0*"
    number = struct.pack(f"{order}H", len(tags))
    return mark + struct.pack(f"{order}I", head) + data + number + entries + bytes(4) + more


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, depth: int, colours: int, row: bytes, hole: bytes) -> bytes:
    """A PNG of one row, with a transparent colour."""
    header = struct.pack(">IIBBBBB", width, 1, depth, colours, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"tRNS", hole)
        + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    )  # fmt: skip


def greys(data: bytes) -> list[int]:
    """The first row, whose pixels must be grey."""
    row = decode(data)[0]
    assert (row == row[:, :1]).all()
    return row[:, 0].tolist()


def test_twelve_bit_grey_keeps_its_range():
    pixels = bytes([0x00, 0x08, 0x00, 0xFF, 0xF4, 0x00])  # 0, 2048, 4095, 1024
    data = tiff(np.zeros((1, 4), np.uint16), bits=12, pixels=pixels)
    assert greys(data) == [0, 128, 255, 64]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (np.uint16, [0, 32768, 65535], [0, 128, 255]),
        (np.uint32, [0, 2**31, 2**32 - 1], [0, 128, 255]),
        (np.uint32, [0, 2**23, 2**24 - 1], [0, 128, 255]),
        (np.uint32, [0, 32768, 65535], [0, 128, 255]),
        (np.int32, [0, 2**30, 2**31 - 1], [0, 128, 255]),
        (np.int16, [0, 2**14, 2**15 - 1], [0, 128, 255]),
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_grey_of_every_depth_keeps_its_range(kind, values, wanted, order):
    data = tiff(np.array([values], kind), order=order)
    try:
        assert greys(data) == wanted
    except ImageError as error:  # Pillow knows some depths in one byte order
        assert error.reason == "not_an_image" and order == ">"


def test_negative_grey_has_no_meaning():
    with pytest.raises(ImageError, match="down to -5") as caught:
        decode(tiff(np.array([[-5, 0, 70_000]], np.int32)))
    assert caught.value.reason == "unsupported_mode"


def test_sixteen_bit_grey_where_zero_is_white():
    values = np.array([[0, 32768, 65535]], np.uint16)
    assert greys(tiff(values, photometric=0)) == [255, 127, 0]


def test_a_transparent_colour_shows_white_in_every_depth():
    assert greys(png(2, 16, 0, struct.pack(">2H", 0, 9000), b"\0\0")) == [255, 35]
    assert greys(png(2, 8, 0, bytes([3, 4]), b"\0\3")) == [255, 4]
    assert greys(png(2, 4, 0, bytes([0x3A]), b"\0\3")) == [255, 170]
    assert greys(png(4, 2, 0, bytes([0b00011011]), b"\0\2")) == [0, 85, 255, 255]
    assert greys(png(2, 1, 0, bytes([0b10000000]), b"\0\0")) == [255, 255]
    row = struct.pack(">6H", 0x1234, 0x5678, 0x9ABC, 0x2234, 0x5678, 0x9ABC)
    shown = decode(png(2, 16, 2, row, struct.pack(">3H", 0x1234, 0x5678, 0x9ABC)))
    assert shown[0].tolist() == [[255, 255, 255], [0x22, 0x56, 0x9A]]


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bit_colours(channels, order):
    values = np.full((2, 2, channels), 65535, np.uint16)
    values[..., :3] = [0x1080, 0x8080, 0xF080]
    data = tiff(values, photometric=2, order=order, extra=2 if channels == 4 else -1)
    assert decode(data)[0, 0].tolist() == [0x10, 0x80, 0xF0]


XY = {
    "wide": ((0.68, 0.32), (0.265, 0.69), (0.15, 0.06)),
    "sRGB": ((0.64, 0.33), (0.3, 0.6), (0.15, 0.06)),
}
_D50 = np.array([0.9642, 1.0, 0.8249])
_BRADFORD = np.array(
    [[1.04788, 0.02292, -0.05020], [0.02959, 0.99048, -0.01706], [-0.00923, 0.01508, 0.75168]]
)
"""From D65 to D50, which profiles are in."""


def to_xyz(name: str) -> np.ndarray:
    """Linear RGB of the primaries to XYZ for a white of D65 (IEC 61966-2-1, annex)."""
    columns = np.array([[x / y, 1, (1 - x - y) / y] for x, y in XY[name]]).T
    white = np.array([0.3127 / 0.3290, 1, (1 - 0.3127 - 0.3290) / 0.3290])
    return columns * np.linalg.solve(columns, white)


def profile(name: str, gamma: float = 2.2) -> bytes:
    """An ICC profile, version 2, of primaries and a gamma (ICC.1:2001-04)."""
    matrix = _BRADFORD @ to_xyz(name)

    def fixed(value: float) -> bytes:
        return struct.pack(">i", round(value * 65536))

    def xyz(values) -> bytes:
        return b"XYZ " + bytes(4) + b"".join(fixed(v) for v in values)

    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256)) + bytes(2)
    text = b"desc" + bytes(4) + struct.pack(">I", 5) + b"test\0" + bytes(78)
    parts = {
        b"desc": text + bytes(-len(text) % 4), b"cprt": b"text" + bytes(4) + b"none",
        b"wtpt": xyz(_D50), b"rXYZ": xyz(matrix[:, 0]), b"gXYZ": xyz(matrix[:, 1]),
        b"bXYZ": xyz(matrix[:, 2]), b"rTRC": curve, b"gTRC": curve, b"bTRC": curve,
    }  # fmt: skip
    table, body, at = b"", b"", 132 + 12 * len(parts)
    for tag, value in parts.items():
        table += tag + struct.pack(">II", at + len(body), len(value))
        body += value
    header = bytearray(128)
    struct.pack_into(">I", header, 0, at + len(body))
    header[8:12], header[12:24], header[36:40] = b"\x02\x40\0\0", b"mntrRGB XYZ ", b"acsp"
    header[68:80] = b"".join(map(fixed, _D50))
    return bytes(header) + struct.pack(">I", len(parts)) + table + body


def in_srgb(colour, name: str, gamma: float = 2.2) -> np.ndarray:
    """The colour of a profile as sRGB, by the definition of sRGB."""
    linear = (np.array(colour) / 255) ** gamma
    linear = np.clip(np.linalg.solve(to_xyz("sRGB"), to_xyz(name) @ linear), 0, 1)
    low, high = linear * 12.92, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, low, high) * 255


def pictured(colour, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (48, 32), colour).save(buffer, kind, **options)
    return buffer.getvalue()


COLOUR = (190, 60, 70)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_a_wide_gamut_becomes_srgb(kind):
    options = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}}.get(kind, {"quality": 100})
    data = pictured(COLOUR, kind, icc_profile=profile("wide"), **options)
    plain = pictured(COLOUR, kind, **options)
    found = decode(data)[16, 24].astype(int)
    assert np.abs(found - in_srgb(COLOUR, "wide")).max() <= 3
    assert found[0] > 202 and np.abs(decode(plain)[16, 24].astype(int) - COLOUR).max() <= 2


def test_alpha_and_palettes_are_converted_too():
    image = Image.new("RGBA", (8, 8), (*COLOUR, 255))
    image.putpixel((0, 0), (*COLOUR, 0))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", icc_profile=profile("wide"))
    found = decode(buffer.getvalue()).astype(int)
    assert found[0, 0].tolist() == [255] * 3
    assert np.abs(found[4, 4] - in_srgb(COLOUR, "wide")).max() <= 2
    buffer = io.BytesIO()
    image.convert("RGB").quantize(4).save(buffer, "PNG", icc_profile=profile("wide"))
    assert np.abs(decode(buffer.getvalue())[4, 4] - in_srgb(COLOUR, "wide")).max() <= 2


def test_an_srgb_profile_changes_no_pixel():
    made = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for each in (made, profile("sRGB")):
        rng = np.random.default_rng(0)
        image = Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        image.save(buffer, "PNG", icc_profile=each)
        if each is made:
            assert np.array_equal(decode(buffer.getvalue()), np.asarray(image))
        else:  # a gamma of 2.2 is another curve in the dark
            assert np.abs(decode(buffer.getvalue()).astype(int) - np.asarray(image)).max() < 12


@pytest.mark.parametrize(
    "damaged",
    [b"", b"nonsense", profile("wide")[:200], profile("wide").replace(b"rXYZ", b"xxxx"),
     profile("wide").replace(b"RGB XYZ", b"CMYKLab"), bytes(300)],
)  # fmt: skip
def test_a_damaged_profile_does_not_lose_the_picture(damaged):
    data = pictured(COLOUR, "PNG", icc_profile=damaged)
    assert decode(data)[16, 24].tolist() == list(COLOUR)


def test_grey_pictures_take_profiles_of_grey_alone():
    buffer = io.BytesIO()
    Image.new("L", (8, 8), 99).save(buffer, "PNG", icc_profile=profile("wide"))
    assert decode(buffer.getvalue())[0, 0].tolist() == [99] * 3


def test_files_that_are_encoded_again_show_the_same_colours():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = pictured(COLOUR, "JPEG", quality=100, icc_profile=profile("wide"), exif=exif)
    turned, suffix = upright_file(data)
    assert suffix == ".jpg" and not Image.open(io.BytesIO(turned)).info.get("icc_profile")
    wanted = in_srgb(COLOUR, "wide")
    assert np.abs(decode(turned)[16, 16].astype(int) - wanted).max() <= 4
    smaller, width, height = encode_smaller(decode(data), max_side=24)
    assert (width, height) == (16, 24)
    assert np.abs(decode(smaller)[8, 8].astype(int) - wanted).max() <= 4
    kept = pictured(COLOUR, "JPEG", icc_profile=profile("wide"))
    assert upright_file(kept) == (kept, ".jpg")


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"]
)
def test_modes_are_those_of_pillow(mode):
    """Of what is opaque."""
    rng = np.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, "TIFF")
    wanted = Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")
    assert np.array_equal(decode(buffer.getvalue()), np.asarray(wanted))
