"""IPTC-IIM: the older of IPTC's two forms of a picture's texts, datasets of bytes with a number."""

from __future__ import annotations

BYLINE, CREDIT, COPYRIGHT = (2, 80), (2, 110), (2, 116)
_CHARACTER_SET = (1, 90)
_UTF8 = b"\x1b%G"
_MOST_DATASETS = 10_000
_RESOURCE = 0x0404
"""Number of Photoshop's image resource that holds IIM."""


def read_iim(block: bytes) -> dict[tuple[int, int], list[str]]:
    """Texts by record and dataset: ``{(2, 116): ["© A. Nother"]}``.

    Raises:
        ValueError: a dataset reaches beyond the end.
    """
    found: dict[tuple[int, int], list[bytes]] = {}
    at = 0
    for _ in range(_MOST_DATASETS):
        if at + 5 > len(block) or block[at] != 0x1C:
            break
        key, length = (block[at + 1], block[at + 2]), int.from_bytes(block[at + 3 : at + 5])
        at += 5
        if length & 0x8000:  # the length of the length
            size = length & 0x7FFF
            length = int.from_bytes(block[at : at + min(size, 8)])
            at += size
        if at + length > len(block):
            raise ValueError("a dataset of IPTC-IIM reaches beyond its end")
        found.setdefault(key, []).append(block[at : at + length])
        at += length
    utf8 = _UTF8 in found.get(_CHARACTER_SET, ())
    return {key: [as_text(v, utf8=utf8) for v in values] for key, values in found.items()}


def as_text(value: bytes, *, utf8: bool = False) -> str:
    """The text of bytes whose encoding nothing states surely: UTF-8, else Latin 1.

    >>> as_text(bytes([0xA9])), as_text("©".encode())
    ('©', '©')
    """
    try:
        return value.decode("utf-8", "replace" if utf8 else "strict").strip("\0 \r\n\t")
    except UnicodeDecodeError:
        return value.decode("latin-1").strip("\0 \r\n\t")


def iim_of_resources(resources: bytes) -> bytes:
    """The IIM block among Photoshop's image resources; empty if there is none.

    Raises:
        ValueError: a resource reaches beyond the end.
    """
    at = 0
    while at + 12 <= len(resources) and resources[at : at + 4].isalnum():
        number, name = int.from_bytes(resources[at + 4 : at + 6]), resources[at + 6]
        at += 6 + name + 1 + (name + 1) % 2
        size = int.from_bytes(resources[at : at + 4])
        at += 4
        if at + size > len(resources):
            raise ValueError("an image resource reaches beyond the end")
        if number == _RESOURCE:
            return resources[at : at + size]
        at += size + size % 2
    return b""


def resources_of_iim(block: bytes) -> bytes:
    """An IIM block as Photoshop's image resources, which a JPEG's APP13 holds."""
    padded = block + bytes(len(block) % 2)
    return b"8BIM" + _RESOURCE.to_bytes(2) + bytes(2) + len(block).to_bytes(4) + padded
