"""Files that are damaged after they were encoded: dropped, or decoded to the same pixels."""

import io
import struct
import threading

import numpy as np
import pytest
from PIL import Image

from glit.images import ImageError, decode, upright_file


def picture(side: int = 256) -> Image.Image:
    """Soft hills with some grain, so that every block has detail."""
    y, x = np.mgrid[:side, :side] / side
    waves = [np.sin(9 * x + 5 * y), np.cos(7 * y - 3 * x * y), np.sin(11 * x * y + 2 * x)]
    grain = np.random.default_rng(0).normal(0, 6, (side, side, 3))
    pixels = 127 + 90 * np.stack(waves, axis=-1) + grain
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(kind: str, image: Image.Image | None = None, **options) -> bytes:
    buffer = io.BytesIO()
    (image or picture()).save(buffer, kind, **options)
    return buffer.getvalue()


def upright() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 1
    return exif


JPEGS = {
    "baseline": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 2},
    "with EXIF": {"exif": upright()},
}


def scan_of(data: bytes) -> int:
    """Where the pixels of the first scan begin."""
    at = data.index(b"\xff\xda")
    return at + 2 + struct.unpack_from(">H", data, at + 2)[0]


def lost_stretch(data: bytes) -> bytes:
    at = scan_of(data) + (len(data) - scan_of(data)) // 3
    return data[:at] + data[at + 1500 :]


def zeroed(data: bytes, number: int = 512) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(number) + data[at + number :]


def half(data: bytes) -> bytes:
    return data[: (scan_of(data) + len(data)) // 2]


JPEG_DAMAGE = {
    "lost stretch": lost_stretch,
    "zeroed": zeroed,
    "half": half,
    "half, closed": lambda data: half(data) + b"\xff\xd9",
    "zeroed to its end": lambda data: half(data).ljust(len(data), b"\0"),
}


@pytest.mark.parametrize("damage", JPEG_DAMAGE)
@pytest.mark.parametrize("kind", JPEGS)
def test_a_damaged_jpeg_is_refused(kind, damage):
    data = encoded("JPEG", quality=90, **JPEGS[kind])
    with pytest.raises(ImageError) as caught:
        decode(JPEG_DAMAGE[damage](data))
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_damage_is_found_in_every_mode(mode):
    data = encoded("JPEG", picture().convert(mode), quality=90)
    with pytest.raises(ImageError, match="damaged"):
        decode(lost_stretch(data))
    with pytest.raises(ImageError, match="damaged"):
        upright_file(rotated(lost_stretch(data)))


def rotated(data: bytes) -> bytes:
    """The same JPEG with an EXIF block that turns it."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def test_a_progressive_jpeg_that_lacks_scans_is_refused():
    """It decodes without a complaint, blurred."""
    data = encoded("JPEG", quality=90, progressive=True)
    starts = [at for at in range(len(data)) if data[at : at + 2] == b"\xff\xda"]
    assert len(starts) > 5
    for number in (1, 3, len(starts) - 1):
        cut = data[: starts[number]] + b"\xff\xd9"
        Image.open(io.BytesIO(cut)).load()
        with pytest.raises(ImageError, match="ends before its last scan"):
            decode(cut)


def after_the_tables(data: bytes) -> int:
    return data.index(b"\xff\xdb")


HARMLESS = {
    "junk before a table": lambda data: (
        data[: after_the_tables(data)] + b"\x12\x34\x56" + data[after_the_tables(data) :]
    ),
    "zeros before the end": lambda data: data[:-2] + b"\0\0\0" + data[-2:],
    "no end": lambda data: data[:-2],
    "bytes after the end": lambda data: data + b"\0" * 5000 + b"trailer",
    "a broken colour profile": lambda data: (
        data[:2] + b"\xff\xe2\x00\x12ICC_PROFILE\0\x05\x01" + data[2:]
    ),
    "a comment of the wrong length": lambda data: (
        data[:2] + b"\xff\xfe\x00\x04abcdefghijkl" + data[2:]
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
@pytest.mark.parametrize("kind", JPEGS)
def test_what_harms_no_pixel_of_a_jpeg_is_forgiven(kind, what):
    data = encoded("JPEG", quality=90, **JPEGS[kind])
    wanted = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(decode(HARMLESS[what](data)), wanted)


@pytest.mark.parametrize("colour", ["white", "black", (30, 90, 200)])
@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True}])
def test_even_pictures_may_have_long_stretches_of_zero_bytes(colour, options):
    image = Image.new("RGB", (900, 700), colour)
    for kind in ("JPEG", "WEBP"):
        data = encoded(kind, image, **(options if kind == "JPEG" else {"quality": 20}))
        assert decode(data).shape == (700, 900, 3)
    if options:
        assert bytes(64) in encoded("JPEG", image, **options)


TIFFS = {
    "deflate": "tiff_adobe_deflate", "packbits": "packbits", "lzw": "tiff_lzw", "jpeg": "jpeg",
}  # fmt: skip


@pytest.mark.parametrize("kind", TIFFS)
def test_a_damaged_tiff_is_refused_and_says_nothing_on_the_terminal(kind, capfd):
    data = encoded("TIFF", compression=TIFFS[kind])
    sound = decode(data)
    assert np.array_equal(sound, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    refused = 0
    for number in (64, 512):
        with pytest.raises(ImageError) as caught:
            decode(zeroed(data, number))
        refused += caught.value.reason == "corrupt"
    with pytest.raises(ImageError):
        decode(data[: len(data) // 2])
    assert refused == 2 and capfd.readouterr() == ("", "")


def test_a_flipped_bit_of_a_deflated_tiff_is_found_by_its_checksum():
    data = encoded("TIFF", compression="tiff_adobe_deflate")
    rng = np.random.default_rng(0)
    for at in rng.integers(100, len(data) * 3 // 4, 8):
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(ImageError):
            decode(flipped)


def test_complaints_about_one_tiff_do_not_fall_on_another():
    """libtiff has one place for complaints, which all threads share."""
    good = encoded("TIFF", compression="tiff_lzw")
    bad = zeroed(good)
    wrong = []

    def work(data: bytes, is_good: bool) -> None:
        for _ in range(20):
            try:
                decode(data)
                wrong.extend([] if is_good else ["shipped"])
            except ImageError:
                wrong.extend(["refused"] if is_good else [])

    threads = [threading.Thread(target=work, args=each) for each in ((good, True), (bad, False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [("WEBP", {"quality": 90}), ("WEBP", {"lossless": True}), ("AVIF", {"speed": 10})],
)
def test_zero_bytes_are_no_pixels(kind, options):
    data = encoded(kind, **options)
    assert decode(data).shape == (256, 256, 3)
    with pytest.raises(ImageError) as caught:
        decode(zeroed(data))
    assert caught.value.reason == "corrupt"


def test_what_the_avif_decoder_raises_is_a_drop():
    data = encoded("AVIF", speed=10)
    for at in range(len(data) // 3, len(data), 97):
        broken = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        try:
            decode(broken)
        except ImageError as error:
            assert error.reason in ("corrupt", "not_an_image")
