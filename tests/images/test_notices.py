"""Notices of copyright, licence and provenance stay with a picture that is encoded again."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from noticed import NOTICES, noticed, picture, read_by_exiv2, segment, signed, with_xmp, xmp
from PIL import Image

from glit.images import decode, encode_png, encode_smaller, picture_frame, upright_file
from glit.inputs.rights import mining_of, read_rights

IN_JPEG = {key: value.removeprefix("lang=x-default ") for key, value in NOTICES.items()}
IN_PNG = {k: v for k, v in IN_JPEG.items() if not k.startswith("Iptc")}


def read(data: bytes) -> dict[str, str]:
    found = {k: v.removeprefix('lang="x-default" ') for k, v in read_by_exiv2(data).items()}
    return {key: found.get(key, "") for key in NOTICES}


def turned(kind: str) -> bytes:
    """A picture with all notices that has to be turned, and says so in EXIF and XMP."""
    exif = Image.Exif()
    exif[0x0112] = 6
    how = {} if kind == "PNG" else {"quality": 95}
    return noticed(picture(kind, exif=exif, **how), {**NOTICES, "Xmp.tiff.Orientation": "6"})


def test_a_smaller_jpeg():
    data = turned("JPEG")
    smaller, *size = encode_smaller(decode(data), max_side=32, original=data)
    assert read(smaller) == IN_JPEG
    assert picture_frame(smaller) == (*size, 1) and decode(smaller).shape == (*size[::-1], 3)
    assert read_by_exiv2(smaller)["Xmp.tiff.Orientation"] == "1"
    assert "Exif.Image.Orientation" not in read_by_exiv2(smaller)
    assert smaller[:4] == b"\xff\xd8\xff\xe0"  # JFIF's segment comes first


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_a_smaller_jpeg_of_another_format(kind):
    data = turned(kind)
    smaller, *_ = encode_smaller(decode(data), max_side=32, original=data)
    wanted = IN_PNG if kind == "WEBP" else IN_JPEG
    assert {k: v for k, v in read(smaller).items() if k in wanted} == wanted


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_an_upright_picture(kind):
    data, suffix = upright_file(turned(kind))
    wanted = IN_JPEG if suffix == ".jpg" else IN_PNG
    found = read(data)
    assert {key: found[key] for key in wanted} == wanted
    assert picture_frame(data)[2] == 1 and upright_file(data)[0] == data


def test_iim_of_a_tiff_stands_in_exif_of_a_png():
    """Which has no place for IIM."""
    data = noticed(picture("TIFF"), {k: v for k, v in NOTICES.items() if k.startswith("Iptc")})
    found = read_by_exiv2(encode_png(data))
    assert found["Exif.Image.Copyright"] == "© Iptc Ötzi"
    assert found["Exif.Image.Artist"] == "Anna Iptc"


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_manifest_of_c2pa_is_not_kept(kind):
    """It would no longer hold."""
    data = signed(kind, uses={"data_mining": "notAllowed"})
    assert read_rights(data).c2pa == "present"
    smaller, *_ = encode_smaller(decode(data), max_side=32, original=data)
    for again in (smaller, encode_png(data)):
        assert read_rights(again).c2pa == "none" and b"c2pa" not in again


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_picture_without_notices_has_the_bytes_of_pillow(kind):
    """Other EXIF is none."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    data = picture(kind, exif=exif)
    pixels = decode(data)
    as_png, as_jpeg = io.BytesIO(), io.BytesIO()
    Image.fromarray(pixels).save(as_png, "PNG")
    small = Image.fromarray(pixels).resize((23, 32), Image.Resampling.LANCZOS)
    small.save(as_jpeg, "JPEG", quality=95)
    assert encode_png(data) == as_png.getvalue()
    assert encode_smaller(pixels, max_side=32, original=data) == (as_jpeg.getvalue(), 23, 32)


def test_xmp_in_utf_16():
    packet = xmp("<cc:license>https://example.org/ü</cc:license>").encode("utf-16")
    data = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + packet)
    smaller, *_ = encode_smaller(decode(data), max_side=32, original=data)
    for again in (smaller, encode_png(data)):
        assert read_rights(again).licence == "https://example.org/ü"
        assert "https://example.org/ü".encode() in again


def test_xmp_that_is_too_long_for_a_jpeg():
    """Its padding goes first; beyond that it is left out, and the picture is whole."""
    packet = xmp("<cc:license>https://example.org</cc:license>")
    padded = (packet + " " * 70_000 + '<?xpacket end="w"?>').encode()
    kept, *_ = encode_smaller(
        np.zeros((40, 40, 3), np.uint8), max_side=32, original=picture("PNG", pnginfo=info(padded))
    )
    assert read_rights(kept).licence == "https://example.org"
    long = xmp(f"<cc:license>{'a' * 70_000}</cc:license>").encode()
    left, *_ = encode_smaller(
        np.zeros((40, 40, 3), np.uint8), max_side=32, original=picture("PNG", pnginfo=info(long))
    )
    assert read_rights(left).licence is None and decode(left).shape == (32, 32, 3)
    assert read_rights(encode_png(picture("PNG", pnginfo=info(long)))).licence == "a" * 2000


def info(packet: bytes):
    from PIL.PngImagePlugin import PngInfo

    found = PngInfo()
    found.add_itxt("XML:com.adobe.xmp", packet.decode())
    return found


def test_damaged_notices_do_not_stop_an_export():
    data = with_xmp("<x") + b""
    smaller, *_ = encode_smaller(decode(data), max_side=32, original=data)
    assert decode(smaller).shape[1] == 32


def further(packet: str, *, leave_out: int = -1, name: bytes = b"") -> bytes:
    """A JPEG with XMP in further segments of 30,000 bytes, as part 3 of the standard has them."""
    more = packet.encode()
    digest = hashlib.md5(more).hexdigest().upper()
    note = 'xmlns:n="http://ns.adobe.com/xmp/note/"'
    own = xmp(f"<n:HasExtendedXMP {note}>{digest}</n:HasExtendedXMP>")
    data = with_xmp(own)
    for number, start in reversed(list(enumerate(range(0, len(more), 30_000)))):
        place = len(more).to_bytes(4) + start.to_bytes(4)
        part = b"http://ns.adobe.com/xmp/extension/\0" + (name or digest.encode()) + place
        if number != leave_out:
            added = segment(0xE1, part + more[start : start + 30_000])
            data = added[: len(added) - len(picture()) + 2] + data[2:]
    return data


FORBIDDEN = '<plus:DataMining rdf:resource="http://ns.useplus.org/ldf/vocab/DMI-PROHIBITED"/>'


def test_further_xmp_of_a_jpeg_is_read_and_kept():
    filler = "".join(f"<dc:description{n}>{'x' * 1000}</dc:description{n}>" for n in range(150))
    packet = xmp(filler + FORBIDDEN)
    data = further(packet)
    assert len(data) > 150_000 and mining_of(data) == "prohibited"
    assert read_rights(data).mining == "prohibited" and not read_rights(data).unreadable
    smaller, *_ = encode_smaller(decode(data), max_side=32, original=data)
    assert mining_of(smaller) == "prohibited"
    cut = further(packet, leave_out=1)
    assert mining_of(cut) == "unreadable" and read_rights(cut).unreadable == {"xmp"}
    assert mining_of(further(packet, name=b"0" * 32)) == "unstated"  # another picture's
