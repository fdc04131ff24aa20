"""Coordinates are taken out of files; exiv2 and Pillow are the judges."""

from __future__ import annotations

import contextlib
import io
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from noticed import NOTICES, noticed, picture
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import glit
from glit.images import decode
from glit.images.location import had_location, has_location, without_location
from glit.images.packets import find_packets

exiv2 = pytest.importorskip("exiv2")
PLACE = {
    "Exif.GPSInfo.GPSLatitudeRef": "N",
    "Exif.GPSInfo.GPSLatitude": "48/1 51/1 2913/100",
    "Exif.GPSInfo.GPSLongitudeRef": "E",
    "Exif.GPSInfo.GPSLongitude": "2/1 17/1 4012/100",
    "Xmp.exif.GPSLatitude": "48,51.4855N",
    "Xmp.exif.GPSLongitude": "2,17.6687E",
}
KINDS = ("JPEG", "PNG", "WEBP", "TIFF")


def keys_of(data: bytes) -> dict[str, str]:
    image = exiv2.ImageFactory.open(data)
    image.readMetadata()
    found = {each.key(): each.toString() for each in image.exifData()}
    return found | {each.key(): each.toString() for each in image.xmpData()}


def coordinates(data: bytes) -> list[str]:
    return [key for key, value in keys_of(data).items() if "GPSL" in key and value.strip()]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_changes(kind):
    data = noticed(picture(kind), NOTICES | PLACE)
    assert len(coordinates(data)) >= 4 and has_location(data) and not had_location(data)
    found = without_location(data)
    assert coordinates(found) == [] and len(found) == len(data)
    assert had_location(found) and without_location(found) is found
    before, after = keys_of(data), keys_of(found)
    same = {key for key in before if "GPS" not in key and "XMLPacket" not in key}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert after["Exif.Image.Copyright"] == NOTICES["Exif.Image.Copyright"]
    np.testing.assert_array_equal(decode(found), decode(data))
    image = Image.open(io.BytesIO(found))
    image.load()
    assert not {2, 4} & image.getexif().get_ifd(0x8825).keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_says_nothing_of_it_is_the_same_object(kind):
    for data in (picture(kind), noticed(picture(kind), NOTICES)):
        assert without_location(data) is data and not had_location(data)


def test_a_directory_without_coordinates_stays():
    data = noticed(picture("JPEG"), {"Exif.GPSInfo.GPSVersionID": "2 3 0 0"})
    assert without_location(data) is data


def test_avif_and_an_exif_block_of_pillow():
    exif = Image.Exif()
    exif[0x8298] = "mine"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 51.0, 29.0), 3: "E", 4: (2.0, 17.0, 40.0)})
    for kind in ("AVIF", "JPEG", "WEBP", "PNG"):
        data = picture(kind, exif=exif.tobytes())
        found = without_location(data)
        after = Image.open(io.BytesIO(found)).getexif()
        assert after[0x8298] == "mine" and not after.get_ifd(0x8825), kind
        assert len(found) == len(data)


def test_the_second_picture_of_a_file_has_none_either():
    exif = Image.Exif()
    exif.get_ifd(0x8825).update({2: (48.0, 51.0, 29.0), 4: (2.0, 17.0, 40.0)})
    one, two = io.BytesIO(), picture("JPEG", seed=1, exif=exif.tobytes())
    Image.open(io.BytesIO(picture("JPEG"))).save(
        one, "MPO", save_all=True, append_images=[Image.open(io.BytesIO(two))], exif=exif.tobytes()
    )
    data = one.getvalue() + two
    found = without_location(data)
    assert bytes.fromhex("0000003000000001") not in found
    for at in (0, len(one.getvalue())):
        assert not Image.open(io.BytesIO(found[at:])).getexif().get_ifd(0x8825)


@pytest.mark.parametrize("compressed", [False, True])
def test_texts_of_a_png(compressed):
    xmp = find_packets(noticed(picture("JPEG"), PLACE)).xmp.decode()
    texts = PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", xmp, zip=compressed)
    texts.add_text("Comment", "kept", zip=compressed)
    data = picture("PNG", pnginfo=texts)
    found = without_location(data)
    image = Image.open(io.BytesIO(found))
    image.load()
    assert image.text["Comment"] == "kept" and "48,51" not in str(image.text)
    assert ("XML:com.adobe.xmp" in image.text) is not compressed
    assert had_location(found) and without_location(found) is found
    np.testing.assert_array_equal(decode(found), decode(data))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_raises_nothing(kind):
    data = noticed(picture(kind), NOTICES | PLACE)
    noise = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(data)
        for at in noise.integers(0, len(data), 8):
            damaged[at] = noise.integers(256)
        without_location(bytes(damaged[: noise.integers(8, len(data))]))
        had_location(bytes(damaged))
    assert zlib.crc32(b"") == 0


def test_a_dataset_and_its_exports_do_not_say_where_pictures_were_taken(tmp_path, run_glit):
    images = tmp_path / "images"
    images.mkdir()
    for number, changes in enumerate((PLACE, {}, PLACE)):
        (images / f"{number}.jpg").write_bytes(noticed(picture(seed=number), NOTICES | changes))
        (images / f"{number}.txt").write_text("A red circle. A blue square.")
    own = ["caption.backend=sidecar"]
    words = ("-r", "captions-only", "--set", own[0], "--executor", "local")
    done = run_glit("build", images, "-o", tmp_path / "out", *words)
    assert "2 pictures said where they were taken; that is left out" in done.output, done
    for name, settings, kept in (
        ("out", [], 0),
        ("kept", ["pack.keep_location=true"], 2),
        ("paths", ["pack.image_store=path"], 0),
    ):
        if name != "out":
            run_build(images, tmp_path / name, recipe="captions-only", overrides=[*own, *settings])
        if name != "paths":
            assert glit.verify(tmp_path / name) == []
            stored = pq.read_table(tmp_path / name / "data")["image"].to_pylist()
            assert sum(has_location(each["bytes"]) for each in stored) == kept
        out = tmp_path / f"{name}-webdataset"
        told = pytest.warns(UserWarning, match="2 pictures said where")
        with told if name == "paths" else contextlib.nullcontext():
            glit.export(tmp_path / name, to="webdataset", output=out, image_root=images)
        if name == "out":  # as Pillow and audit see it
            found = glit.audit(images).findings
            assert {each.code: each.at_fault for each in found}["picture-location"] == 2
        tar = (out / "train-00000.tar").read_bytes()
        assert (tar.count(b"48,51.4855N") == kept) and tar.count(b"Anna Exif") >= 3
