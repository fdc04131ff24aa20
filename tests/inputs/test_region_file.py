"""Regions and pairs from the user's own files."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import png, run_build

import glit
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.inputs.region_file import read_region_file

SENTENCES = ("A red ball is on the left.", "It is a sunny day.")


def box(*xyxy, **rest):
    return {"box": list(xyxy), **rest}


def read(*regions):
    return read_region_file(json.dumps({"regions": list(regions)}), width=48, height=40)


def test_best_score_first_and_defaults():
    first, second = read(box(0, 0, 8, 8, score=0.2), box(1.5, 2, 48, 40, label="ball"))
    assert first.region.box.xyxy == (1.5, 2, 48, 40)
    assert (first.region.score, first.region.label, first.region.source) == (1.0, "ball", "file")
    assert (second.region.score, second.sentences) == (0.2, ())


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (box(0, 0, 49, 8), "box .* leaves the 48x40 image"),
        (box(8, 0, 8, 8), "is empty"),
        (box(float("nan"), 0, 8, 8), "is empty or leaves"),
        (box(0, 0, 8), "region 0"),
        (box(0, 0, 8, 8, score=2), "score 2, want 0 to 1"),
        (box(0, 0, 8, 8, sentences="A ball."), "want a list of texts"),
        ("box", "want an object"),
    ],
)
def test_a_region_that_cannot_be_is_named(region, message):
    with pytest.raises(ValueError, match=message):
        read(region)


def test_shares_that_are_called_pixels_are_refused():
    shares = [0.1, 0.2, 0.5, 0.9]
    for key in ("box", "box_xyxy", "box_cxcywh"):
        with pytest.raises(ValueError, match="all its boxes lie in the first pixel; shares"):
            read({key: shares}, {key: [0, 0, 1, 1]})
    assert (
        read({"box_xyxyn": shares})
        and read(box(*shares), box(0, 0, 2, 2))
        and read(box(0, 0, 1, 1))
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"regions": 3}', "3"])
def test_what_is_no_list_of_regions(text):
    with pytest.raises(ValueError, match="regions|JSON"):
        read_region_file(text, width=48, height=40)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    ball = box(2, 3, 20, 30, label="ball", sentences=[SENTENCES[0]])
    files = {
        "a": [box(0, 0, 40, 40, score=0.5), ball],
        "b": [{**ball, "sentences": ["Nobody said this."]}],
        "c": [],
        "d": [box(0, 0, 400, 40)],
    }
    lines = []
    for number, name in enumerate([*files, "e"]):
        (folder / f"{name}.png").write_bytes(png(seed=number))
        lines.append(json.dumps({"path": f"{name}.png", "caption": " ".join(SENTENCES)}))
        if name in files:
            (folder / f"{name}.json").write_text(json.dumps({"regions": files[name]}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    return folder


def test_a_build_of_own_boxes(images, tmp_path):
    build = {"recipe": "annotated", "captions": tmp_path / "captions.jsonl"}
    manifest = run_build(images, tmp_path / "out", **build)
    assert manifest.counts.drops == {
        "propose/bad_masks": 1, "propose/no_annotation": 1, "propose/no_region": 1,
        "score/bad_masks": 1,
    }  # fmt: skip
    messages = dict(
        pq.read_table(tmp_path / "out" / "drops.parquet", columns=["source_path", "message"])
        .to_pandas()
        .values
    )
    assert messages["b.png"] == "no sentence of the caption is 'Nobody said this.'"
    assert messages["e.png"] == "there is no e.json"
    (row,) = pq.read_table(tmp_path / "out" / "data").to_pylist()
    assert (row["similarity"], row["image_similarity"]) == ([1, 0, 0, 0], [0, 1])
    assert [(p["sentence"], p["region"], p["global_wins"]) for p in row["pairs"]] == [
        (0, 0, False), (1, 0, True),
    ]  # fmt: skip
    assert list(verify(str(tmp_path / "out"))) == []


def test_a_changed_file_is_read_again(images, tmp_path):
    build = {"recipe": "annotated", "captions": tmp_path / "captions.jsonl"}
    run_build(images, tmp_path / "out", **build)
    mended = {"regions": [box(0, 0, 40, 40, sentences=[SENTENCES[1]])]}
    (images / "b.json").write_text(json.dumps(mended))
    again = run_build(images, tmp_path / "out", replace=True, **build)
    assert again.counts.shipped == 2


def test_options_that_want_a_matcher_are_refused(images, tmp_path):
    with pytest.raises(RecipeError, match="score.backend = 'file' compares nothing"):
        run_build(
            images, tmp_path / "out", recipe="annotated", captions=tmp_path / "captions.jsonl",
            overrides=["score.crop=context"],
        )  # fmt: skip


def test_rules_that_compare_cosines_are_refused(images, tmp_path):
    build = {"recipe": "annotated", "captions": tmp_path / "captions.jsonl"}
    with pytest.raises(RecipeError, match="rule = 'centred' compares cosines, but"):
        run_build(images, tmp_path / "out", overrides=["pair.rule=centred"], **build)
    run_build(images, tmp_path / "out", **build)
    with pytest.raises(RecipeError, match="rule = 'argmax' compares cosines, but"):
        glit.pair(tmp_path / "out", tmp_path / "again", settings=["pair.rule=argmax"])


def test_nulls_are_as_if_they_were_not_there():
    entry = {"box": [1, 2, 9, 9], "label": None, "source": None, "score": None, "mask": None}
    [found] = read_region_file(json.dumps({"regions": [entry]}), width=20, height=20)
    assert (found.region.label, found.region.source, found.region.score) == ("", "file", 1)
