"""Regions that a user brings in one file, with their sentences and phrases."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import Counting, counts, data_bytes, png, quiet, run_build
from rich.console import Console

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import InputError, RecipeError, UserError
from glit.inputs.published.user_regions import read_regions
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.runtime.progress import StageProgress

SENTENCES = ("A red ball is on the left.", "It is a sunny day.")
CAPTION = " ".join(SENTENCES)
BALL = {"box_xyxy": [2, 3, 20.3, 30], "label": "ball", "score": 0.9}
SUN = {"box_xywhn": [0.5, 0.0, 0.25, 0.5]}


@pytest.fixture
def images(tmp_path) -> Path:
    """Three images of 48 by 40 pixels, and their captions beside the folder."""
    folder = tmp_path / "images"
    folder.mkdir()
    lines = []
    for number, name in enumerate("abc"):
        (folder / f"{name}.png").write_bytes(png(seed=number))
        lines.append(json.dumps({"path": f"{name}.png", "caption": CAPTION}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    return folder


def jsonl(path: Path, *rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def build(images, output, regions, *settings, recipe="provided", **rest):
    return run_build(
        images, output, recipe=recipe, captions=images.parent / "captions.jsonl", regions=regions,
        overrides=settings, **rest,
    )  # fmt: skip


ROWS = [
    {"path": "a.png", **BALL, "sentences": [SENTENCES[0]], "phrases": ["red ball", [0, 10]]},
    {"path": "a.png", **SUN, "phrases": ["sunny day"]},
    {"path": "b.png", **BALL, "sentences": [[3, 30]]},
    {"path": "c.png", **SUN},
]


@pytest.fixture
def regions(tmp_path) -> Path:
    return jsonl(tmp_path / "regions.jsonl", *ROWS)


def test_boxes_pairs_and_phrases_as_given(images, regions, tmp_path):
    manifest = build(images, tmp_path / "out", regions, "ground.enabled=true")
    assert counts(manifest) == (3, 3, 0, 0) and "grounder" not in manifest.models
    assert not list(verify(str(tmp_path / "out")))
    rows = {row.source_path: row for row in Dataset(str(tmp_path / "out"))}
    ball, sun = rows["a.png"].regions[1], rows["a.png"].regions[0]
    assert sun.box.xyxy == (24, 0, 36, 20) and sun.source == "file"
    assert ball.box.xyxy == pytest.approx((2, 3, 20.3, 30)) and ball.label == "ball"
    assert rows["a.png"].similarity.tolist() == [[0, 1], [0, 0]]
    assert rows["b.png"].similarity.tolist() == [[1], [1]]  # a span of two sentences
    assert rows["c.png"].image_similarity.tolist() == [1, 1]
    phrases = rows["a.png"].extra["phrases"]
    assert [(p["sentence"], p["text"], p["char_start"], p["char_end"]) for p in phrases] == [
        (0, "A red ball", 0, 10), (0, "red ball", 2, 10), (1, "sunny day", 35, 44),
    ]  # fmt: skip
    assert all(p["token_end"] > p["token_start"] for p in phrases)
    found = rows["a.png"].extra["groundings"]
    assert [(each["phrase"], each["region"]) for each in found] == [(0, 1), (1, 1), (2, 0)]
    assert [each["score"] for each in found] == pytest.approx([0.9, 0.9, 1.0])


def csv_file(path: Path) -> Path:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["path", "box_xyxy", "label", "score", "sentences", "phrases"])
        lines.writerow(["a.png", "2 3 20.3 30", "ball", 0.9, SENTENCES[0], '["red ball", [0, 10]]'])
        lines.writerow(["a.png", "[24, 0, 36, 20]", "", "", "", "sunny day"])
        lines.writerow(["b.png", "2, 3, 20.3, 30", "ball", 0.9, "[[3, 30]]", ""])
        lines.writerow(["c.png", "24;0;36;20", "", "", "", ""])
    return path


def parquet_file(path: Path) -> Path:
    spans = [[[0, 10], [2, 10]], [[35, 44]], None, None]
    columns = {
        "path": [row["path"] for row in ROWS],
        "box_xyxy": [[2, 3, 20.3, 30], [24, 0, 36, 20]] * 2,
        "label": ["ball", None] * 2,
        "score": [0.9, None] * 2,
        "sentences": pa.array([[[0, 26]], None, [[3, 30]], None], pa.list_(pa.list_(pa.int64()))),
        "phrases": pa.array(spans, pa.list_(pa.list_(pa.int64()))),
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(("write", "name"), [(csv_file, "r.csv"), (parquet_file, "r.parquet")])
def test_files_of_other_kinds_give_the_same(images, regions, tmp_path, write, name):
    build(images, tmp_path / "out", regions, "ground.enabled=true")
    build(images, tmp_path / "other", write(tmp_path / name), "ground.enabled=true")
    assert data_bytes(tmp_path / "other") == data_bytes(tmp_path / "out")


def test_coco(images, tmp_path):
    found = {
        "images": [{"id": 7, "file_name": "a.png"}],
        "categories": [{"id": 3, "name": "ball"}],
        "annotations": [
            {
                "image_id": 7,
                "category_id": 3,
                "bbox": [2, 3, 46.2, 27],
                "tokens_positive": [[2, 10]],
            }
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(found))
    build(images, tmp_path / "out", tmp_path / "coco.json", "ground.enabled=true")
    [row] = Dataset(str(tmp_path / "out"))
    assert row.regions[0].box.xyxy == (2, 3, 48, 30)  # rounding beyond the edge is cut
    assert row.regions[0].label == "ball" and row.extra["phrases"][0]["text"] == "red ball"
    twice = {**found, "images": found["images"] * 2}  # of two with one id, the last had all boxes
    (tmp_path / "coco.json").write_text(json.dumps(twice))
    with pytest.raises(InputError, match="2 images have the id 7"):
        list(read_regions(tmp_path / "coco.json", str(images)))
    (tmp_path / "coco.json").write_text("[]")
    with pytest.raises(InputError, match="not COCO's JSON with images"):
        build(images, tmp_path / "other", tmp_path / "coco.json")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"bbox": [0, 0, 1, 1]}, "row 1 has 'bbox', which does not say how it counts"),
        ({}, "row 1 has 0 boxes; want one of box_xyxy, box_xywh or"),
        ({**BALL, **SUN}, "row 1 has 2 boxes"),
        ({"box_xyxy": [0, 0, 1]}, "want four numbers"),
        ({"box_xyxy": [0, 0, 1, "x"]}, "want four numbers"),
        ({**BALL, "label": "x" * 1001}, "has a label of 1001 characters; want 1000 at most"),
        ({"box_xyxyn": [0, 0, 40, 40]}, "want shares between 0 and 1; for pixels .* box_xyxy"),
        ({**BALL, "sentence": "A."}, "has the key 'sentence'; did you mean 'sentences'"),
    ],
)
def test_a_row_that_is_not_understood_stops_the_build(tmp_path, row, message):
    file = jsonl(tmp_path / "regions.jsonl", {"path": "a.png", **row})
    with pytest.raises(InputError, match=message):
        list(read_regions(file, str(tmp_path)))


@pytest.mark.parametrize(
    ("rows", "drop"),
    [
        ([{"box_xyxy": [0, 0, float("nan"), 9]}], ("propose", "row 1: box_xyxy .* is empty or")),
        ([{"box_xyxy": [0, 0, 60, 9]}], ("propose", "leaves the 48x40 image")),
        ([{"box_xywh": [4, 4, 0, 9]}], ("propose", "is empty")),
        ([{"box_xyxy": [10, 0, 10.0000001, 30]}], ("propose", "row 1: box .* is empty")),
        ([{**BALL, "label": ["a"]}], ("propose", r"label \['a'\], want a text")),
        ([{**BALL, "score": 3}], ("propose", "score 3, want 0 to 1")),
        ([BALL, SUN, BALL], ("propose", "row 3: repeats row 1")),
        ([{**BALL, "sentences": ["Not said."]}], ("score", "no sentence of the caption is 'Not")),
        ([{**BALL, "phrases": ["unny"]}], ("ground", "the phrase 'unny' is not in the caption")),
        (
            [{**BALL, "phrases": [[40, 46]]}],
            ("ground", r"the caption: \[40, 46\] is no span of 45"),
        ),
    ],
)
def test_what_does_not_fit_the_image_drops_it(images, tmp_path, rows, drop):
    rows = [*({"path": "a.png", **row} for row in rows), {"path": "b.png", **BALL}]
    file = jsonl(tmp_path / "regions.jsonl", *rows)
    manifest = build(images, tmp_path / "out", file, "ground.enabled=true")
    stage, message = drop
    assert manifest.counts.drops == (
        {"propose/bad_masks": 1, "propose/no_annotation": 1}
        if stage == "propose"
        else {f"{stage}/bad_masks": 1, "propose/no_annotation": 1}
    )
    drops = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
    told = {row["source_path"]: row["message"] for row in drops}
    assert told["c.png"] == "regions.jsonl has no row for c.png"
    assert re.search(message, told["a.png"])


def test_paths_without_an_image_and_images_without_a_row_are_told(images, tmp_path):
    file = jsonl(tmp_path / "r.jsonl", {"path": "a.png", **BALL}, {"path": "z.png", **BALL})
    said = io.StringIO()
    build(images, tmp_path / "out", file, progress=StageProgress(Console(file=said, width=400)))
    assert "r.jsonl: no image here for 1 of its paths: z.png" in said.getvalue()
    assert "2 of 3 images have no row in r.jsonl" in said.getvalue()
    with pytest.raises(InputError, match="none of the 3 images has one; its paths may be"):
        build(images, tmp_path / "other", jsonl(tmp_path / "z.jsonl", {"path": "z.png", **BALL}))


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_phrases_that_nothing_keeps_are_told(images, regions, tmp_path, enabled):
    said = io.StringIO()
    progress = StageProgress(Console(file=said, width=400))
    build(images, tmp_path / "out", regions, f"ground.enabled={enabled}", progress=progress)
    told = "regions.jsonl: the phrases of 2 rows are left out" in said.getvalue()
    assert told == (enabled == "false")


def test_regions_that_name_no_sentence_are_told_before_the_build(images, tmp_path):
    for rows, told in (([{"path": "a.png", **BALL}], True), (ROWS[:1], False)):
        said = io.StringIO()
        progress = StageProgress(Console(file=said, width=400))
        file = jsonl(tmp_path / "r.jsonl", *rows)
        build(images, tmp_path / f"out-{told}", file, progress=progress)
        assert ("no row names a sentence or a phrase" in said.getvalue()) == told


def test_boxes_for_a_matcher_to_choose_among(images, regions, tmp_path):
    build(images, tmp_path / "out", regions, recipe="mini")
    row = Dataset(str(tmp_path / "out"))[0]
    assert {region.source for region in row.regions} == {"file"}
    assert row.similarity.max() < 1


def test_wanted_and_not_given_or_given_and_not_wanted(images, regions, tmp_path):
    with pytest.raises(RecipeError, match="propose.backend = 'provided' wants the regions: add"):
        run_build(images, tmp_path / "out", recipe="provided", captions=tmp_path / "captions.jsonl")
    with pytest.raises(UserError, match="--regions was given, but recipe 'mini'"):
        build(images, tmp_path / "out", regions, "propose.backend=grid", recipe="mini")
    with pytest.raises(InputError, match="--regions .*gone.jsonl: no such file"):
        build(images, tmp_path / "out", tmp_path / "gone.jsonl")


def test_stopped_anywhere_it_goes_on_to_the_same_bytes(images, regions, tmp_path):
    build(images, tmp_path / "whole", regions, "ground.enabled=true")
    for _ in range(6):
        with pytest.raises(KeyboardInterrupt):
            build(images, tmp_path / "out", regions, "ground.enabled=true", executor=Counting(1))
    build(images, tmp_path / "out", regions, "ground.enabled=true")
    assert data_bytes(tmp_path / "out") == data_bytes(tmp_path / "whole")


def test_changed_rows_are_read_again_and_others_are_not(images, regions, tmp_path):
    settings = ("ground.enabled=true", "ingest.chunk_size=1")
    build(images, tmp_path / "out", regions, *settings)
    jsonl(regions, *ROWS[:3], {**ROWS[3], "label": "sun"})
    counting = Counting()
    build(images, tmp_path / "out", regions, *settings, replace=True, executor=counting)
    assert counting.stages == {"propose": 1, "ground": 1, "score": 1, "pair": 1}
    assert Dataset(str(tmp_path / "out"))[2].regions[0].label == "sun"


def test_images_added_later_find_their_rows(images, regions, tmp_path):
    held = (images / "c.png").read_bytes()
    (images / "c.png").unlink()
    build(images, tmp_path / "out", regions)
    (images / "c.png").write_bytes(held)
    add(str(tmp_path / "out"), LocalExecutor(), quiet())
    assert len(Dataset(str(tmp_path / "out"))) == 3


def test_spans_count_the_characters_of_the_caption_as_it_was_given(images, tmp_path):
    """NFD and outer whitespace in the user's captions: spans move with what becomes of them."""
    given = " \n" + "Cafe\u0301 a\u0300 la carte. A re\u0301d door is open.  "
    first, last = given.index("A re"), given.index(" is open")
    lines = [json.dumps({"path": f"{name}.png", "caption": given}) for name in "ab"]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    start = given.index("re\u0301d")
    rows = [
        {"path": "a.png", **BALL, "sentences": [[first, last]], "phrases": [[first, last]]},
        {"path": "a.png", **SUN, "phrases": [[start, start + 4, "r\u00e9d"]]},
        {"path": "b.png", **BALL, "phrases": [[start - 2, start + 2, "r\u00e9d"]]},
    ]
    build(images, tmp_path / "out", jsonl(tmp_path / "r.jsonl", *rows), "ground.enabled=true")
    [row] = Dataset(str(tmp_path / "out"))
    phrases = [phrase["text"] for phrase in row.extra["phrases"]]
    assert phrases == ["A r\u00e9d door", "r\u00e9d"]
    [pair] = [pair for pair in row.pairs if not pair.global_wins]
    assert row.sentences[pair.sentence].text == "A r\u00e9d door is open."
    drops = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
    told = {drop["source_path"]: drop["message"] for drop in drops}
    assert "of the caption is 'A r\u00e9', the file says 'r\u00e9d'" in told["b.png"]
    for name in "ab":  # the same of captions beside the images, which are stripped
        (images / f"{name}.txt").write_text(given)
    run_build(
        images, tmp_path / "beside", recipe="provided", regions=tmp_path / "r.jsonl",
        overrides=["ground.enabled=true", "caption.backend=sidecar"],
    )  # fmt: skip
    [row] = Dataset(str(tmp_path / "beside"))
    assert row.caption.text == "Caf\u00e9 \u00e0 la carte. A r\u00e9d door is open."
    assert [phrase["text"] for phrase in row.extra["phrases"]] == phrases
    assert not list(verify(str(tmp_path / "beside")))
