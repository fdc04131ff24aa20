"""Two datasets side by side."""

from __future__ import annotations

import dataclasses

import pytest
from scored import sentence

from glit.data.records import Box, Pair, Region
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.view.compare import compare_data, compare_rows


def row_of(like, texts, pairs):
    """A row with these sentences; region r is a box from 10 r to 10 r + 8."""
    sentences = tuple(map(sentence, texts))
    regions = tuple(
        Region(box=Box(x0=10 * r, y0=0, x1=10 * r + 8, y1=8), score=1, label="", source="sam")
        for r in range(4)
    )
    chosen = tuple(
        Pair(sentence=s, region=r, similarity=0.5, global_wins=none) for s, r, none in pairs
    )
    similarity = like.similarity[:1, :1].repeat(len(texts), 0).repeat(4, 1)
    return dataclasses.replace(
        like, sentences=sentences, regions=regions, similarity=similarity, image_similarity=None,
        phrase_similarity=None, pairs=chosen,
    )  # fmt: skip


def test_by_hand(opened):
    a = row_of(opened[1], ["one", "two", "three", "four", "gone", "same", "same"],
               [(0, 0, False), (1, 1, False), (2, 2, False), (3, 3, True), (4, 0, False), (5, 1, False), (6, 2, False)])  # fmt: skip
    b = row_of(opened[1], ["four", "two", "one", "three", "new", "same", "same"],
               [(0, 0, True), (1, 2, False), (2, 0, False), (3, 0, True), (4, 1, False), (5, 1, False), (6, 2, False)])  # fmt: skip
    found = compare_rows(a, b)
    assert found.kinds == (
        "same", "other", "only_a", "neither", "reworded", "same", "same", "reworded"
    )  # fmt: skip
    assert (found.apart_a, found.apart_b) == ((1, 2, 4), (1, 3, 4))
    assert found.difference == 4 / 8
    assert compare_rows(b, a).difference == found.difference
    assert compare_rows(a, a).difference == 0


def test_the_greatest_difference_comes_first(built, hostile):
    a, b = Dataset(hostile), Dataset(built)
    data = compare_data(a, b, most=5, seed=0)
    assert data["common"] == data["compared"] == 7 and len(data["samples"]) == 5
    differences = [sample["difference"] for sample in data["samples"]]
    assert differences == sorted(differences, reverse=True) and differences[0] == 1  # the hostile
    sides = data["samples"][1]["sides"]
    assert sides[0]["id"] == sides[1]["id"] and not sides[1]["image"]
    assert sum(data["kinds"].values()) > 7


def test_datasets_without_an_image_in_common(built, make_dataset):
    other = make_dataset(3)
    for name in ("drops.parquet", "duplicates.parquet"):
        (other / name).write_bytes((built / name).read_bytes())
    with pytest.raises(InputError, match="no image in common"):
        compare_data(Dataset(built), Dataset(other), most=5, seed=0)


@pytest.mark.parametrize(
    "words", [[], ["--serve", "-o", "x.html"], ["OTHER", "-o", "x.html", "--where", "true"]]
)
def test_what_does_not_go_together(hostile, run_glit, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = run_glit("view", hostile, *[hostile if word == "OTHER" else word for word in words])
    assert (done.code == 2 and "want either" in done.errors) or "takes no" in done.errors
    assert list(tmp_path.iterdir()) == []
