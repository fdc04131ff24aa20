"""The world of stamps on photographs: what is told is where it is said to be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image, ImageColor, ImageDraw

from tools.stamps import PLACES, Placed, questions, read_stamps, write_part

COLOURS = {"a red ball": "red", "an owl": "blue", "some nuts": "lime", "a pair of shoes": "yellow"}


@pytest.fixture
def stamps(tmp_path):
    folder = tmp_path / "stamps" / "some"
    folder.mkdir(parents=True)
    for number, (thing, colour) in enumerate(COLOURS.items()):
        image = Image.new("RGBA", (80, 80))
        ImageDraw.Draw(image).rectangle((20, 10, 59, 69), fill=colour)
        image.save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"{thing[0].upper()}{thing[1:]}.\nde.utf8=...\n")
    Image.new("RGBA", (8, 8)).save(folder / "sign.png")
    (folder / "sign.txt").write_text("Stop here, then go when it is your turn.\n")
    return read_stamps(tmp_path / "stamps")


def test_a_line_that_names_one_thing_makes_a_stamp(stamps) -> None:
    assert [stamp.thing for stamp in stamps] == list(COLOURS)


def test_boxes_hold_the_stamp_that_their_sentence_names(stamps, tmp_path) -> None:
    grey = tmp_path / "grey.png"
    Image.new("RGB", (300, 200), "grey").save(grey)
    pictures = write_part(tmp_path / "part", stamps, [grey], num=8, seed="test")
    captions = (tmp_path / "part" / "captions.jsonl").read_text().splitlines()
    for number, (things, line) in enumerate(zip(pictures, captions, strict=True)):
        name = f"{number:05d}.jpg"
        assert json.loads(line) == {
            "path": name, "caption": " ".join(each.sentence for each in things)
        }  # fmt: skip
        beside = tmp_path / "part" / "images" / f"{number:05d}.json"
        regions = json.loads(beside.read_text())["regions"]
        assert [region["sentences"] for region in regions] == [[t.sentence] for t in things]
        picture = Image.open(tmp_path / "part" / "images" / name)
        for each in things:
            x0, y0, x1, y1 = each.box_xyxy
            assert 0 <= x0 < x1 <= picture.width and 0 <= y0 < y1 <= picture.height
            row, column = divmod(each.place, 3)
            at = ((x0 + x1) * 3 // (2 * picture.width), (y0 + y1) * 3 // (2 * picture.height))
            assert at == (column, row) and PLACES[each.place] in each.sentence
            patch = np.array(picture)[(y0 + y1) // 2, (x0 + x1) // 2].astype(int)
            assert abs(patch - ImageColor.getrgb(COLOURS[each.stamp.thing])).max() < 40
    again = write_part(tmp_path / "again", stamps, [grey], num=8, seed="test")
    assert again == pictures
    assert (tmp_path / "again" / "images" / "00003.jpg").read_bytes() == (
        tmp_path / "part" / "images" / "00003.jpg"
    ).read_bytes()


def test_a_false_sentence_names_another_thing_or_a_place_where_nothing_is(stamps) -> None:
    things = [Placed(stamps[0], 4, (0, 0, 1, 1), ""), Placed(stamps[1], 0, (0, 0, 1, 1), "")]
    asked = questions([things], stamps)
    (of_object,), (of_place,) = (each.values() for each in asked.values())
    place = "the very middle" if "red ball" in of_object["caption"] else "the top left corner"
    assert place in of_object["caption"] and place in of_object["negative_caption"]
    assert any(thing in of_object["negative_caption"] for thing in ("some nuts", "shoes"))
    false = of_place["negative_caption"]
    assert not any(f"the {PLACES[taken]}." in false for taken in (0, 4))
