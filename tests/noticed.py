"""Pictures with notices of rights, written by tools that are not ours: exiv2, and c2pa-python."""

from __future__ import annotations

import datetime
import io
import json
from functools import cache

import numpy as np
import pytest
from PIL import Image

TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp",
         "TIFF": "image/tiff", "AVIF": "image/avif", "HEIF": "image/heic"}  # fmt: skip
PLUS = "http://ns.useplus.org/ldf/vocab/"
SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/"
NOTICES = {
    "Exif.Image.Copyright": "© Exif Ötzi",
    "Exif.Image.Artist": "Anna Exif",
    "Iptc.Envelope.CharacterSet": "\x1b%G",
    "Iptc.Application2.Copyright": "© Iptc Ötzi",
    "Iptc.Application2.Byline": "Anna Iptc",
    "Iptc.Application2.Credit": "Agency",
    "Xmp.dc.rights": "lang=x-default © Xmp Ötzi",
    "Xmp.xmpRights.WebStatement": "https://example.org/licence",
    "Xmp.plus.DataMining": f"{PLUS}DMI-PROHIBITED-AIMLTRAINING",
    "Xmp.iptcExt.DigitalSourceType": f"{SOURCE_TYPE}digitalCapture",
}
"""Keys of exiv2."""


def picture(kind: str = "JPEG", *, seed: int = 0, **how) -> bytes:
    """A picture without any metadata."""
    pixels = np.random.default_rng(seed).integers(0, 255, (40, 56, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **how)
    return buffer.getvalue()


def noticed(data: bytes, notices: dict[str, str]) -> bytes:
    """The picture with notices, written by exiv2."""
    exiv2 = pytest.importorskip("exiv2")
    opened = exiv2.ImageFactory.open(data)
    opened.readMetadata()
    kinds = {"Exif": opened.exifData(), "Iptc": opened.iptcData(), "Xmp": opened.xmpData()}
    for key, value in notices.items():
        kinds[key.partition(".")[0]][key] = value
    opened.writeMetadata()
    file = opened.io()
    file.open()
    written = bytes(file.mmap())
    file.munmap()
    file.close()
    return written


def read_by_exiv2(data: bytes) -> dict[str, str]:
    """What exiv2 reads of a picture's notices, by its keys."""
    exiv2 = pytest.importorskip("exiv2")
    opened = exiv2.ImageFactory.open(data)
    opened.readMetadata()
    found = {}
    for each in (opened.exifData(), opened.iptcData(), opened.xmpData()):
        found |= {datum.key(): datum.toString() for datum in each}
    return found


def signed(
    kind: str = "JPEG",
    *,
    uses: dict[str, str] | None = None,
    label: str = "cawg.training-mining",
    source_type: str = "digitalCapture",
    original: bytes = b"",
) -> bytes:
    """A picture with a C2PA manifest, signed by c2pa-python with a certificate of a test's own."""
    c2pa = pytest.importorskip("c2pa")
    owner = label.partition(".")[0]
    entries = {f"{owner}.{use}": {"use": value} for use, value in (uses or {}).items()}
    actions = [{"action": "c2pa.created", "digitalSourceType": f"{SOURCE_TYPE}{source_type}"}]
    assertions = [{"label": "c2pa.actions", "data": {"actions": actions}}]
    if entries:
        assertions.append({"label": label, "data": {"entries": entries}})
    manifest = {
        "claim_generator_info": [{"name": "a-camera", "version": "1"}],
        "format": TYPES[kind],
        "assertions": assertions,
    }
    certificates, key = _certificates()
    out = io.BytesIO()
    with c2pa.Signer.from_info(c2pa.C2paSignerInfo(b"es256", certificates, key, None)) as signer:
        data = io.BytesIO(original or picture(kind))
        c2pa.Builder(json.dumps(manifest)).sign(signer, TYPES[kind], data, out)
    return out.getvalue()


@cache
def _certificates() -> tuple[bytes, bytes]:
    """A chain of certificates as C2PA wants it, and the key of the first one."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issuer_key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    usage = {"content_commitment": False, "key_encipherment": False, "data_encipherment": False,
             "key_agreement": False, "encipher_only": False, "decipher_only": False}  # fmt: skip
    made = []
    for number, (name, key) in enumerate((("own", own_key), ("issuer", issuer_key))):
        names = [
            x509.Name(
                [
                    x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, each),
                    x509.NameAttribute(x509.oid.NameOID.ORGANIZATION_NAME, "Tests"),
                ]
            )
            for each in (name, "issuer")
        ]
        is_issuer = bool(number)
        mail = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.EMAIL_PROTECTION])
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        builder = (
            x509.CertificateBuilder(names[1], names[0], key.public_key(), number + 1)
            .not_valid_before(datetime.datetime(2024, 1, 1))
            .not_valid_after(datetime.datetime(2100, 1, 1))
            .add_extension(x509.BasicConstraints(is_issuer, None), True)
            .add_extension(
                x509.KeyUsage(True, key_cert_sign=is_issuer, crl_sign=is_issuer, **usage), True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(known, False)
        )
        builder = builder if is_issuer else builder.add_extension(mail, False)
        certificate = builder.sign(issuer_key, hashes.SHA256())
        made.append(certificate.public_bytes(serialization.Encoding.PEM))
    private = own_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return b"".join(made), private


def segment(marker: int, body: bytes) -> bytes:
    """A JPEG with one more segment of metadata."""
    plain = picture()
    return plain[:2] + bytes([0xFF, marker]) + (2 + len(body)).to_bytes(2) + body + plain[2:]


def with_xmp(packet: str) -> bytes:
    """A JPEG with a packet of XMP."""
    return segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + packet.encode())


def xmp(properties: str) -> str:
    """A packet of XMP with some properties."""
    return f"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://creativecommons.org/ns#"
 xmlns:plus="http://ns.useplus.org/ldf/xmp/1.0/"
 xmlns:xmpMM="http://ns.adobe.com/xap/1.0/mm/"
 xmlns:xmpRights="http://ns.adobe.com/xap/1.0/rights/"
 xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/"
 xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/">
 <rdf:Description rdf:about="">{properties}</rdf:Description></rdf:RDF></x:xmpmeta>"""
