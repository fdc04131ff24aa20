"""What pictures say of the rights in them: files by exiv2 and c2pa-python, and hostile ones."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib

import pyarrow as pa
import pytest
from noticed import (
    NOTICES,
    PLUS,
    SOURCE_TYPE,
    noticed,
    picture,
    segment,
    signed,
    with_xmp,
    xmp,
)
from PIL import Image, PngImagePlugin

from glit.images.tiff_tags import first_directory
from glit.inputs.rights import RIGHTS, Rights, mining_of, read_rights

KINDS = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"]
BY_EXIV2 = KINDS[:4]
"""It does not write AVIF."""


@pytest.mark.parametrize("kind", BY_EXIV2)
def test_notices_that_exiv2_wrote(kind):
    data = noticed(picture(kind), NOTICES)
    found = read_rights(data)
    no_iim = kind == "WEBP"  # which has no place for it
    assert found.copyright == "© Xmp Ötzi" and found.licence == "https://example.org/licence"
    assert found.creator == ("Anna Exif" if no_iim else "Anna Iptc")
    assert found.credit == (None if no_iim else "Agency")
    assert found.mining == mining_of(data) == "prohibited"
    assert found.digital_source_type == "digitalCapture" and found.ai_generated is False
    assert found.c2pa == "none" and not found.unreadable
    assert found.sources["copyright"] == "xmp"
    assert found.sources["creator"] == ("exif" if no_iim else "iim")


@pytest.mark.parametrize("kind", BY_EXIV2)
@pytest.mark.parametrize("block", ["Exif", "Iptc"])
def test_one_kind_of_notice_alone(kind, block):
    if (kind, block) == ("WEBP", "Iptc"):
        return
    data = noticed(picture(kind), {k: v for k, v in NOTICES.items() if k.startswith(block)})
    found = read_rights(data)
    assert (found.copyright, found.creator) == (f"© {block} Ötzi", f"Anna {block}")
    assert (
        found.sources["copyright"] == {"Exif": "exif", "Iptc": "iim"}[block]
        and mining_of(data) == "unstated"
    )


def test_exif_and_xmp_of_an_avif():
    """By libavif, through Pillow."""
    exif = Image.Exif()
    exif[0x8298] = "(c) Exif"
    data = picture(
        "AVIF", exif=exif, xmp=xmp(f"<plus:DataMining>{PLUS}DMI-ALLOWED</plus:DataMining>").encode()
    )
    assert read_rights(data).copyright == "(c) Exif" and mining_of(data) == "allowed"


def test_a_heif():
    """By libheif, and signed by c2pa-python."""
    heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x8298] = "(c) Exif"
    packet = xmp(f"<plus:DataMining>{PLUS}DMI-PROHIBITED</plus:DataMining>").encode()
    pixels, buffer = Image.open(io.BytesIO(picture())), io.BytesIO()
    heif.from_pillow(pixels).save(buffer, quality=90, exif=exif.tobytes(), xmp=packet)
    data = buffer.getvalue()
    assert read_rights(data).copyright == "(c) Exif" and mining_of(data) == "prohibited"
    again = read_rights(signed("HEIF", uses={"data_mining": "constrained"}, original=data))
    assert (again.c2pa, again.mining, again.copyright) == ("present", "prohibited", "(c) Exif")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("DMI-PROHIBITED", "prohibited"),
        (f"{PLUS}DMI-PROHIBITED-GENAIMLTRAINING", "prohibited"),
        (f"{PLUS}DMI-PROHIBITED-EXCEPTSEARCHENGINEINDEXING", "prohibited"),
        (f"{PLUS}DMI-PROHIBITED-SEECONSTRAINT", "prohibited"),
        (f"{PLUS}#DMI-PROHIBITED/", "prohibited"),
        (f"{PLUS}DMI-ALLOWED", "allowed"),
        (f"{PLUS}DMI-UNSPECIFIED", "unstated"),
    ],
)
def test_values_of_data_mining(value, said):
    data = with_xmp(xmp(f'<plus:DataMining rdf:resource="{value}"/>'))
    assert mining_of(data) == said
    assert read_rights(data).mining == (None if said == "unstated" else said)


def test_xmp_as_attributes_arrays_languages_and_of_ingredients():
    packet = xmp("").replace('rdf:about=""', f'rdf:about="" plus:DataMining="{PLUS}DMI-ALLOWED"')
    assert mining_of(with_xmp(packet)) == "allowed"
    creators = (
        "<dc:creator><rdf:Seq><rdf:li>A</rdf:li><rdf:li>B &amp; C</rdf:li></rdf:Seq></dc:creator>"
    )
    rights = (
        '<dc:rights><rdf:Alt><rdf:li xml:lang="de">von A</rdf:li>'
        '<rdf:li xml:lang="x-default">by A</rdf:li></rdf:Alt></dc:rights>'
    )
    found = read_rights(with_xmp(xmp(creators + rights)))
    assert (found.creator, found.copyright) == ("A; B & C", "by A")
    inner = f"<rdf:Description><plus:DataMining>{PLUS}DMI-PROHIBITED</plus:DataMining></rdf:Description>"
    ingredient = f"<xmpMM:Pantry><rdf:Bag><rdf:li>{inner}</rdf:li></rdf:Bag></xmpMM:Pantry>"
    assert mining_of(with_xmp(xmp(ingredient))) == "unstated"


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ('<cc:license rdf:resource="https://creativecommons.org/licenses/by/4.0/"/>'
         "<xmpRights:WebStatement>https://example.org</xmpRights:WebStatement>",
         "licence", "https://creativecommons.org/licenses/by/4.0/"),
        ("<xmpRights:UsageTerms><rdf:Alt><rdf:li>ask</rdf:li></rdf:Alt></xmpRights:UsageTerms>", "licence", "ask"),
        ("<xmpRights:Marked>False</xmpRights:Marked>", "licence", "public domain"),
        ("<xmpRights:Marked>True</xmpRights:Marked>", "licence", None),
        ("<photoshop:Credit>Agency</photoshop:Credit>", "credit", "Agency"),
        ("<Iptc4xmpExt:AISystemUsed>a model</Iptc4xmpExt:AISystemUsed>", "ai_generated", True),
        (f"<Iptc4xmpExt:DigitalSourceType>{SOURCE_TYPE}compositeWithTrainedAlgorithmicMedia"
         "</Iptc4xmpExt:DigitalSourceType>", "ai_generated", True),
        (f"<Iptc4xmpExt:DigitalSourceType>{SOURCE_TYPE}algorithmicMedia</Iptc4xmpExt:DigitalSourceType>",
         "ai_generated", False),
    ],
)  # fmt: skip
def test_fields_of_xmp(properties, field, value):
    assert getattr(read_rights(with_xmp(xmp(properties))), field) == value


def test_texts_of_a_png_and_profiles_of_imagemagick():
    said = PngImagePlugin.PngInfo()
    said.add_text("Copyright", "© Png", zip=True)
    said.add_text("Author", "Anna")
    packet = xmp(f"<plus:DataMining>{PLUS}DMI-PROHIBITED</plus:DataMining>").encode()
    said.add_text("Raw profile type xmp", f"\nxmp\n{len(packet):8}\n{packet.hex()}\n", zip=True)
    data = picture("PNG", pnginfo=said)
    found = read_rights(data)
    assert (found.copyright, found.creator, found.mining) == ("© Png", "Anna", "prohibited")
    assert found.sources == {"copyright": "png", "creator": "png", "mining": "xmp"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("label", ["cawg.training-mining", "c2pa.training-mining"])
def test_manifests_that_c2pa_python_signed(kind, label):
    uses = {
        "ai_generative_training": "notAllowed",
        "data_mining": "constrained",
        "ai_inference": "allowed",
    }
    data = signed(kind, uses=uses, label=label, source_type="trainedAlgorithmicMedia")
    found = read_rights(data)
    assert found.mining == mining_of(data) == "prohibited" and found.ai_generated
    assert found.digital_source_type == "trainedAlgorithmicMedia"
    assert (found.c2pa, found.claim_generator, found.signer) == ("present", "a-camera", None)
    assert not found.unreadable


@pytest.mark.parametrize(
    ("uses", "said"),
    [({"ai_training": "constrained", "data_mining": "allowed"}, "constrained"),
     ({"ai_training": "allowed", "data_mining": "allowed"}, "allowed"), ({}, "unstated")],
)  # fmt: skip
def test_uses_that_a_manifest_names(uses, said):
    assert mining_of(signed(uses=uses)) == said


def test_the_strictest_of_several_statements_counts():
    allowed = with_xmp(xmp(f"<plus:DataMining>{PLUS}DMI-ALLOWED</plus:DataMining>"))
    both = signed(uses={"data_mining": "notAllowed"}, original=allowed)
    found = read_rights(both)
    assert (
        (found.mining, found.sources["mining"])
        == ("prohibited", "c2pa")
        == (mining_of(both), "c2pa")
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_other_encodings_of_xmp(encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    data = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + (mark + MINING_TEXT).encode(encoding))
    assert mining_of(data) == read_rights(data).mining == "prohibited"


def test_a_picture_that_says_nothing():
    for kind in [*KINDS, "GIF", "BMP"]:
        assert read_rights(picture(kind)) == Rights() and mining_of(picture(kind)) == "unstated"


BOMB = (
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>" + xmp("<plus:DataMining>&i;</plus:DataMining>")
)  # fmt: skip


def png_with(*chunks: tuple[bytes, bytes, int | None]) -> bytes:
    """A PNG with chunks after its header, whose lengths may be lies."""
    plain, more = picture("PNG"), b""
    for kind, body, length in chunks:
        size = len(body) if length is None else length
        more += struct.pack(">I", size) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return plain[:33] + more + plain[33:]


def jumbf(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + kind + body


def nested(depth: int) -> bytes:
    found = b""
    for _ in range(depth):
        found = jumbf(b"jumb", found)
    return found


def assertion(content: bytes, label: bytes = b"cawg.training-mining") -> bytes:
    """A PNG whose manifest holds an assertion of these bytes of CBOR."""
    described = jumbf(b"jumd", bytes(16) + b"\x03" + label + b"\0")
    return png_with((b"caBX", jumbf(b"jumb", described + jumbf(b"cbor", content)), None))


def tiff_of_many_large_tags() -> bytes:
    """Each of 4,000 tags is the whole file."""
    size = 4_000 * 12 + 14
    entry = struct.pack("<HHII", 700, 1, size, 0)
    return b"II*\0" + struct.pack("<IH", 8, 4_000) + entry * 4_000 + bytes(4)


MINING_TEXT = xmp(f"<plus:DataMining>{PLUS}DMI-PROHIBITED</plus:DataMining>")
HOSTILE = {
    "entities": (with_xmp(BOMB), {"xmp"}),
    "cut XML": (with_xmp(MINING_TEXT[:-30]), {"xmp"}),
    "deep XML": (with_xmp("<a>DataMining" * 2000), {"xmp"}),
    "an encoding that is none": (with_xmp('<?xml version="1.0" encoding="nix"?>' + MINING_TEXT), {"xmp"}),
    "inflating text": (png_with((b"zTXt", b"Raw profile type xmp\0\0" + zlib.compress(bytes(1 << 28), 1), None)), {"container"}),
    "many inflating texts": (png_with(*[(b"zTXt", b"Author\0\0" + zlib.compress(bytes(9)), None)] * 50), {"container"}),
    "no hexadecimal": (png_with((b"tEXt", b"Raw profile type exif\0\nexif\n 9\nxyz", None)), {"container"}),
    "nested boxes": (png_with((b"caBX", nested(5000), None)), {"c2pa"}),
    "many boxes": (png_with((b"caBX", jumbf(b"jumb", jumbf(b"free", b"") * 100_000 + b"brob"), None)), {"c2pa"}),
    "a box beyond the end": (png_with((b"caBX", struct.pack(">I", 1 << 31) + b"jumb", None)), {"c2pa"}),
    "a compressed manifest": (png_with((b"caBX", jumbf(b"jumb", jumbf(b"brob", b"c2pa")), None)), {"c2pa"}),
    "deep CBOR": (assertion(b"\x81" * 100_000), {"c2pa"}),
    "CBOR of 2^60 values": (assertion(b"\x9b" + (1 << 60).to_bytes(8)), {"c2pa"}),
    "CBOR of 2^60 bytes": (assertion(b"\x5b" + (1 << 60).to_bytes(8)), {"c2pa"}),
    "CBOR with a list as a key": (assertion(b"\xa1\x80\x00"), {"c2pa"}),
    "CBOR without an end": (assertion(b"\xbf"), {"c2pa"}),
    "IIM beyond the end": (segment(0xED, b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x06\x1c\x02\x74\xff\x00a"), {"iim"}),
    "resources beyond the end": (segment(0xED, b"Photoshop 3.0\x008BIM\x04\x04\0\0\x7f\xff\xff\xff"), {"iim"}),
    "EXIF beyond the end": (segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\x7f"), {"exif"}),
    "EXIF that is none": (segment(0xE1, b"Exif\0\0nothing"), {"exif"}),
    "tags of the whole file": (tiff_of_many_large_tags(), {"xmp"}),
    "a big TIFF's directory nowhere": (b"II+\0\x08\0\0\0" + b"\xff" * 8, {"container"}),
    "a box of 2^63 bytes": (picture("AVIF") + struct.pack(">I4sQ", 1, b"uuid", 1 << 63), set()),
}  # fmt: skip


@pytest.mark.timeout(5)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_unreadable_and_cheap(name):
    data, unreadable = HOSTILE[name]
    tracemalloc.start()
    try:
        found = read_rights(data)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert found.unreadable == unreadable and found.mining is None
    assert mining_of(data) in ("unstated", "unreadable")


@pytest.mark.parametrize(("order", "mark"), [("<", b"II"), (">", b"MM")])
def test_tags_in_both_byte_orders_and_the_first_of_two(order, mark):
    entries = [
        (700, 1, 4, b"ab\0\0"),
        (33432, 2, 8, struct.pack(f"{order}I", 50)),
        (700, 1, 4, b"cdef"),
    ]
    body = b"".join(struct.pack(f"{order}HHI4s", *entry) for entry in entries)
    data = mark + struct.pack(f"{order}HIH", 42, 8, 3) + body + bytes(4) + b"a notice"
    assert data[50:] == b"a notice"
    found = first_directory(data, {700, 33432}, most=8)
    assert found == {700: b"ab\0\0", 33432: b"a notice"}
    assert first_directory(data, {700, 33432}, most=7) == {700: b"ab\0\0"}


def test_long_texts_and_halves_of_characters_fit_into_a_table():
    described = jumbf(b"jumd", bytes(16) + b"\x03" + b"stds.iptc\0")
    said = b'{"Iptc4xmpExt:DigitalSourceType": "http://x/\\ud800trained", "plus:DataMining": "DMI-ALLOWED"}'
    store = jumbf(b"jumb", described + jumbf(b"json", said))
    iim = b"\x1c\x02\x74\x80\x04" + (60_000).to_bytes(4) + b"a" * 60_000
    data = png_with((b"caBX", store, None))
    found = read_rights(data)
    assert (found.digital_source_type, found.mining) == ("?trained", "allowed")
    pa.array([found.as_row()], RIGHTS).validate(full=True)
    resources = b"8BIM\x04\x04\0\0" + len(iim).to_bytes(4) + iim
    assert read_rights(segment(0xED, b"Photoshop 3.0\0" + resources)).copyright == "a" * 2000


@pytest.mark.parametrize("name", ["entities", "cut XML", "a compressed manifest", "deep CBOR"])
def test_what_cannot_be_read_is_not_silent(name):
    assert mining_of(HOSTILE[name][0]) == "unreadable"


def test_a_length_of_two_gigabytes():
    data = png_with((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + MINING_TEXT.encode(), 0x7FFFFFFF))
    assert read_rights(data).unreadable == {"xmp"} and mining_of(data) == "unreadable"


@pytest.mark.timeout(20)
def test_damaged_files_raise_nothing():
    """Bytes changed, cut out and repeated, in the metadata above all."""
    made = [noticed(picture(kind), NOTICES) for kind in BY_EXIV2]
    made += [signed(kind, uses={"data_mining": "notAllowed"}) for kind in KINDS]
    draw, different = random.Random(0), 0
    for data in made:
        whole = read_rights(data)
        for _ in range(120):
            damaged = bytearray(data)
            for _ in range(draw.randint(1, 6)):
                at = draw.randrange(len(damaged))
                match draw.randrange(3):
                    case 0:
                        damaged[at] = draw.choice((0, 0xFF, draw.randrange(256)))
                    case 1:
                        del damaged[at : at + draw.randint(1, 40)]
                    case 2:
                        damaged[at:at] = damaged[at : at + draw.randint(1, 200)]
            different += read_rights(bytes(damaged)) != whole
            assert mining_of(bytes(damaged)) in (
                "prohibited",
                "constrained",
                "allowed",
                "unstated",
                "unreadable",
            )
    assert different > 100
