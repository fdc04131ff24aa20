"""Reservations by paths: tdmrep.json and files like robots.txt."""

from __future__ import annotations

import json

import pytest

from glit.errors import InputError
from glit.inputs.rights import read_reservations
from glit.inputs.rights.cbor import read_cbor
from glit.inputs.rights.reservations import matches


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("/", "/a.jpg", True),
        ("/photos", "/photos/a.jpg", True),
        ("/photos/", "/photo.jpg", False),
        ("*.jpg", "/photos/a.jpg", True),
        ("/*.jpg$", "/photos/a.jpg", True),
        ("/*.jpg$", "/photos/a.jpg.png", False),
        ("/a$", "/a", True),
        ("/a$", "/ab", False),
        ("/a*b*c", "/a-b-c-d", True),
        ("/a*b*c", "/a-c-b", False),
        ("/ab*b$", "/ab", False),
        ("*", "/x", True),
    ],
)
def test_patterns(pattern, path, found):
    assert matches(pattern, path) is found


@pytest.mark.timeout(5)
def test_a_pattern_of_many_stars_takes_no_time():
    assert not matches("*a" * 2000 + "b", "/" + "a" * 4000)


def test_tdmrep(tmp_path):
    rules = [
        {"location": "/", "tdm-reservation": 1, "tdm-policy": "https://example.org/policy.json"},
        {"location": "/free/", "tdm-reservation": 0},
        {"location": "/free/not%20this/*.png", "tdm-reservation": 1},
    ]
    file = tmp_path / "tdmrep.json"
    file.write_text(json.dumps(rules))
    read = read_reservations(str(file), ("*",))
    assert read.mining("a.jpg") == "prohibited" and read.mining("free/a.jpg") == "allowed"
    assert read.mining("free/not this/a.png") == "prohibited" and read.name == "tdmrep.json"
    file.write_text(json.dumps(rules[1:]))
    assert read_reservations(str(file), ("*",)).mining("a.jpg") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tdmrep.json", '[{"location": "https://example.org/a/", "tdm-reservation": 1}]'),
        ("robots.txt", "User-agent: *\nDisallow: HTTP://example.org/a/"),
    ],
)
def test_an_address_counts_by_its_path(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    read = read_reservations(str(tmp_path / name), ("*",))
    assert (read.mining("a/b.jpg"), read.mining("b.jpg")) == ("prohibited", None)
    assert read.mining("shard.tar::a/b.jpg") == "prohibited"


TEXT = """\ufeff# a comment
User-Agent: GPTBot
User-Agent: CCBot
Disallow: /   # everything

User-agent: *
Allow: /free/
Disallow: /free/*.png$
Disallow: photos
Disallow:
Sitemap: https://example.org
"""


def test_groups_of_user_agents(tmp_path):
    file = tmp_path / "ai.txt"
    file.write_text(TEXT)
    everybody, two = (
        read_reservations(str(file), ("*",)),
        read_reservations(str(file), ("*", "ccbot")),
    )
    assert everybody.mining("a.jpg") is None and two.mining("a.jpg") == "prohibited"
    assert everybody.mining("free/a.jpg") == "allowed" == two.mining("free/a.jpg")
    assert everybody.mining("free/a.png") == everybody.mining("photos/b.jpg") == "prohibited"
    assert len(everybody.rules) == 3 and len(two.rules) == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tdmrep.json", "{"),
        ("tdmrep.json", '{"location": "/", "tdm-reservation": 1}'),
        ("tdmrep.json", '[{"location": "/"}]'),
        ("tdmrep.json", '[{"location": "/", "tdm-reservation": "1"}]'),
        ("tdmrep.json", "[" * 100_000),
        ("ai.txt", "no list of this kind"),
        ("ai.txt", ""),
    ],
)
def test_files_that_are_none(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"want tdmrep\.json, a list of objects"):
        read_reservations(str(tmp_path / name), ("*",))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_reservations(str(tmp_path / "tdmrep.json"), ("*",))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0), ("1818", 24), ("3863", -100), ("1bffffffffffffffff", 2**64 - 1),
        ("f93c00", 1.0), ("fb3ff199999999999a", 1.1), ("f4", False), ("f6", None), ("f820", None),
        ("62c3bc", "ü"), ("43010203", b"\1\2\3"), ("7f657374726561646d696e67ff", "streaming"),
        ("5f42010243030405ff", b"\1\2\3\4\5"), ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}), ("a201020304", {1: 2, 3: 4}),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
    ],
)  # fmt: skip
def test_cbor_of_the_standards_examples(data, value):
    """RFC 8949, appendix A."""
    assert read_cbor(bytes.fromhex(data)) == value


@pytest.mark.parametrize("data", ["", "18", "62c3", "1c", "1f", "9f01", "a1", "a18000", "81" * 40])
def test_cbor_that_is_damaged(data):
    with pytest.raises(ValueError, match="CBOR"):
        read_cbor(bytes.fromhex(data))
