from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glit.errors import UserError
from glit.scenes import (
    TRUTH_SCHEMA,
    canonical_caption,
    decode_rle,
    draw_scene,
    encode_rle,
    render,
    split_of_seed,
    write_caption,
    write_scenes,
)
from glit.scenes.recognise import looks_like_scene
from glit.scenes.shapes import coverage
from glit.scenes.vocabulary import (
    BACKGROUNDS,
    COLOURS,
    LEVELS,
    LIGHTS,
    PATTERNS,
    PLACE_NAMES,
    SHAPES,
    SIZES,
)


def test_the_vocabulary_is_as_large_as_promised() -> None:
    assert (len(SHAPES), len(COLOURS), len(SIZES), len(PATTERNS)) == (10, 10, 3, 3)
    assert (len(BACKGROUNDS), len(LIGHTS), len(PLACE_NAMES)) == (6, 3, 9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [29, 44, 60])
def test_a_shape_fills_its_box(shape: str, side: int) -> None:
    inside = coverage(shape, side) >= 0.5
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    slack = 0.1 * side
    assert rows[0] <= slack and rows[-1] >= side - 1 - slack
    assert columns[0] <= slack and columns[-1] >= side - 1 - slack


def test_shapes_are_distinct() -> None:
    masks = [coverage(shape, 44) >= 0.5 for shape in SHAPES]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert (a & b).sum() / (a | b).sum() < 0.8


@pytest.mark.parametrize("level", LEVELS)
def test_a_scene_is_the_same_every_time_and_at_every_size(level: str) -> None:
    first, again = draw_scene(5, 17, level=level), draw_scene(5, 17, level=level)
    assert first == again
    assert (render(first).pixels == render(again).pixels).all()
    small, large = render(first, size_px=128), render(first, size_px=512)
    for a, b in zip(small.boxes_xyxy, large.boxes_xyxy, strict=True):
        assert np.allclose(np.array(a) / 128, np.array(b) / 512, atol=0.02)


def test_another_seed_or_index_gives_another_scene() -> None:
    scenes = {draw_scene(seed, index).objects for seed in range(5) for index in range(20)}
    assert len(scenes) == 100


@pytest.mark.parametrize(
    ("level", "low", "high"), [("easy", 1, 2), ("normal", 2, 4), ("hard", 3, 5)]
)
def test_numbers_places_and_overlap(level: str, low: int, high: int) -> None:
    counts = set()
    for index in range(200):
        scene = draw_scene(2_000_000, index, level=level)
        counts.add(len(scene.objects))
        assert len({item.place for item in scene.objects}) == len(scene.objects)
        rendering = render(scene)
        for k, item in enumerate(scene.objects):
            column, row = int(item.cx * 3), int(item.cy * 3)
            assert row * 3 + column == item.place
            x0, y0, x1, y1 = rendering.boxes_xyxy[k]
            assert 0 <= x0 < x1 <= 128 and 0 <= y0 < y1 <= 128
            if level != "hard":
                assert abs((x1 - x0) - item.side * 128) < 5
                assert abs((y1 - y0) - item.side * 128) < 5
    assert counts == set(range(low, high + 1))


def test_pixels_show_the_colour_the_truth_names() -> None:
    for index in range(50):
        scene = draw_scene(3, index)
        rendering = render(scene)
        gain = np.array(LIGHTS[scene.light][1])
        for k, item in enumerate(scene.objects):
            shown = rendering.pixels[rendering.object_ids == k + 1].astype(float)
            wanted = np.array(COLOURS[item.colour]) * gain
            share = (np.abs(shown - wanted).max(axis=1) < 12).mean()
            assert share > (0.8 if item.pattern == "plain" and item.size != "small" else 0.3)


@pytest.mark.parametrize("level", LEVELS)
def test_every_sentence_lies_where_its_span_says(level: str) -> None:
    for index in range(200):
        scene = draw_scene(11, index, level=level)
        caption = write_caption(scene)
        told = []
        for sentence in caption.sentences:
            assert caption.text[sentence.char_start : sentence.char_end] == sentence.text
            assert sentence.text.endswith(".")
            if sentence.kind == "object":
                assert sentence.object is not None
                told.append(sentence.object)
                item = scene.objects[sentence.object]
                words = sentence.text.lower().replace(",", "").rstrip(".").split()
                for word in (item.shape, item.colour, item.pattern, item.size):
                    assert word in words
        assert sorted(told) == list(range(len(scene.objects)))
        assert " ".join(s.text for s in caption.sentences) == caption.text


def test_lengths_of_normal_captions() -> None:
    captions = [write_caption(draw_scene(12, index)).text for index in range(1000)]
    words = np.array([len(text.split()) for text in captions])
    assert words.min() >= 60 and words.max() <= 120
    assert 0.15 <= (words >= 75).mean() <= 0.27
    assert len(set(captions)) == 1000


def test_every_fourth_hard_scene_is_a_twin_told_in_the_same_words() -> None:
    for index in range(3, 203, 4):
        twin, original = (draw_scene(13, i, level="hard") for i in (index, index - 1))
        assert twin.twin_of == index - 1 and original.twin_of is None
        changed = [
            (name, k)
            for k, (a, b) in enumerate(zip(twin.objects, original.objects, strict=True))
            for name in ("shape", "colour", "pattern", "size", "place", "cx", "cy", "side")
            if getattr(a, name) != getattr(b, name)
        ]
        assert len(changed) == 1 and changed[0][0] in ("shape", "colour", "pattern")
        assert (render(twin).pixels != render(original).pixels).any()
        a, b = write_caption(twin), write_caption(original)
        assert a.text != b.text
        assert [s.kind for s in a.sentences] == [s.kind for s in b.sentences]


def test_varied_scenes_are_hard_ones_that_begin_in_many_ways() -> None:
    first = []
    for index in range(100):
        scene, hard = (draw_scene(13, index, level=level) for level in ("varied", "hard"))
        assert scene.objects == hard.objects and scene.background == hard.background
        assert np.array_equal(render(scene, size_px=64).pixels, render(hard, size_px=64).pixels)
        first.append(write_caption(scene).sentences[0])
        true = {(item.colour, item.shape) for item in scene.objects}
        words = first[-1].text.replace(",", "").rstrip(".").split()
        named = {(a, b) for a, b in pairwise(words) if a in COLOURS and b in SHAPES}
        assert named <= true
    assert len({each.text for each in first}) > 50
    assert 15 < sum(each.kind == "object" for each in first) < 50


def test_hard_scenes_hold_objects_that_one_attribute_decides() -> None:
    close = 0
    for index in range(200):
        kinds = [
            (o.shape, o.colour, o.pattern) for o in draw_scene(14, index, level="hard").objects
        ]
        close += any(
            sum(x == y for x, y in zip(a, b, strict=True)) == 2
            for i, a in enumerate(kinds)
            for b in kinds[:i]
        )
    assert close >= 150


def test_relations_are_true() -> None:
    found = 0
    for index in range(200):
        scene = draw_scene(15, index, level="hard")
        names = [f"{o.pattern} {o.colour} {o.shape}" for o in scene.objects]
        for sentence in write_caption(scene).sentences:
            if sentence.kind != "relation":
                continue
            found += 1
            assert sentence.object is not None
            item = scene.objects[sentence.object]
            other = scene.objects[[sentence.text.endswith(f"the {n}.") for n in names].index(True)]
            if "left of" in sentence.text:
                assert item.cx < other.cx
            elif "right of" in sentence.text:
                assert item.cx > other.cx
            elif "above" in sentence.text:
                assert item.cy < other.cy
            else:
                assert "below" in sentence.text and item.cy > other.cy
    assert found > 200


def test_the_captioners_wording_of_a_scene() -> None:
    scene = draw_scene(2_000_000, 0)
    text = canonical_caption(scene)
    places = [PLACE_NAMES[item.place] for item in sorted(scene.objects, key=lambda o: o.place)]
    assert [text.index(f"{p[0].upper()}{p[1:]} there is") for p in places] == sorted(
        text.index(f"{p[0].upper()}{p[1:]} there is") for p in places
    )
    for item in scene.objects:
        assert f"{item.size} {item.pattern} {item.colour} {item.shape}." in text
    assert BACKGROUNDS[scene.background] in text and LIGHTS[scene.light][0] in text


def test_run_lengths_round_trip() -> None:
    rng = np.random.default_rng(0)
    for mask in (
        np.zeros((4, 5), dtype=bool),
        np.ones((4, 5), dtype=bool),
        *(rng.random((7, 3)) < 0.5 for _ in range(20)),
    ):
        counts = encode_rle(mask)
        assert sum(counts) == mask.size
        assert (decode_rle(counts, height=mask.shape[0], width=mask.shape[1]) == mask).all()


def test_splits() -> None:
    assert [split_of_seed(s) for s in (0, 999_999, 1_000_000, 1_999_999, 2_000_000, 10**9)] == [
        "train",
        "train",
        "validation",
        "validation",
        "test",
        "test",
    ]


def test_files_on_disk(tmp_path: Path) -> None:
    write_scenes(tmp_path, num=6, seed=2_000_000, level="hard")
    lines = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "ground_truth.parquet")
    assert table.schema.equals(TRUTH_SCHEMA)
    rows = table.to_pylist()
    assert [line["path"] for line in lines] == [row["path"] for row in rows]
    assert sorted(p.name for p in (tmp_path / "images").iterdir()) == [r["path"] for r in rows]
    for index, (line, row) in enumerate(zip(lines, rows, strict=True)):
        scene = draw_scene(2_000_000, index, level="hard")
        rendering = render(scene)
        pixels = np.asarray(Image.open(tmp_path / "images" / row["path"]))
        assert (pixels == rendering.pixels).all()
        assert line["caption"] == row["caption"] == write_caption(scene).text
        assert (row["split"], row["level"], row["width"], row["height"]) == (
            "test",
            "hard",
            128,
            128,
        )
        for k, item in enumerate(row["objects"]):
            mask = decode_rle(item["mask"], height=128, width=128)
            assert (mask == (rendering.object_ids == k + 1)).all()
            assert tuple(item["box"]) == rendering.boxes_xyxy[k]
        for sentence in row["sentences"]:
            span = row["caption"][sentence["char_start"] : sentence["char_end"]]
            assert span == sentence["text"]
            if sentence["object"] is None:
                assert sentence["box"] is None and sentence["mask"] is None
            else:
                owner = row["objects"][sentence["object"]]
                assert sentence["box"] == owner["box"] and sentence["shape"] == owner["shape"]
    assert rows[3]["twin_of"] == rows[2]["path"] and rows[2]["twin_of"] is None


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_scenes(tmp_path / name, num=3, seed=4, size=96)
    for path in sorted((tmp_path / "a").rglob("*.*")):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes()


def test_jpeg_and_size(tmp_path: Path) -> None:
    write_scenes(tmp_path, num=1, seed=4, size=256, image_format="jpeg")
    image = Image.open(io.BytesIO((tmp_path / "images" / "000000.jpg").read_bytes()))
    assert (image.format, image.size) == ("JPEG", (256, 256))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"level": "insane"}, "choose one of easy, normal, hard, varied"),
        ({"size": 8}, "choose 64 to 1024"),
        ({"num": 0}, "choose 1 or more"),
        ({"seed": -1}, "choose 0 or more"),
        ({"image_format": "gif"}, "choose png or jpeg"),
    ],
)
def test_what_cannot_be(tmp_path: Path, changed: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        write_scenes(tmp_path / "out", **{"num": 1, "seed": 1, **changed})
    assert not (tmp_path / "out").exists()


def test_scenes_never_mix_with_others(tmp_path):
    write_scenes(tmp_path, num=3, seed=4)
    write_scenes(tmp_path, num=3, seed=4)
    with pytest.raises(UserError, match=r"holds 1 images of other scenes \(first: 000002.png\)"):
        write_scenes(tmp_path, num=2, seed=4)


@pytest.mark.parametrize(("size", "image_format"), [(128, "jpeg"), (128, "png"), (512, "jpeg")])
@pytest.mark.parametrize("level", LEVELS)
def test_scenes_are_told_from_other_images(level: str, size: int, image_format: str) -> None:
    """A build with the mini models says nothing of scenes, and warns of everything else."""
    told = 0
    for index in range(12):
        buffer = io.BytesIO()
        scene = render(draw_scene(0, index, level=level), size_px=size)
        Image.fromarray(scene.pixels).save(buffer, image_format, quality=92)
        told += looks_like_scene(np.asarray(Image.open(buffer)))
    assert told >= 11


def test_other_images_are_no_scenes() -> None:
    gradient = np.asarray(Image.radial_gradient("L").convert("RGB"))
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    drawing = np.full((64, 64, 3), (90, 200, 120), np.uint8)
    assert not any(map(looks_like_scene, (gradient, noise, drawing)))
