"""Retrieval with a false sentence in every caption."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from building import run_build
from evaluating import CONFIG, SetByHand, config, three_images

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.evaluation.collection import (
    DatasetCollection,
)
from glit.evaluation.false_sentences import drawn, read_false_sentences, with_false_sentences
from glit.evaluation.report import heading, shown
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.robustness import robustness


def test_a_false_sentence_in_the_middle(make_dataset) -> None:
    collection = DatasetCollection(str(make_dataset(5)), CONFIG)
    wrong = with_false_sentences(collection, drawn(collection, seed=3))
    others = {
        c[a:b]
        for i in range(5)
        for c in collection.captions[i]
        for a, b in collection.sentences(i)[0]
    }
    for i, item in enumerate(wrong):
        text = item.text
        caption = collection.captions[i][0]
        middle = collection.sentences(i)[0][2][0]
        assert text.startswith(caption[:middle]) and text.endswith(caption[middle:])
        false = text[middle : len(text) - len(caption) + middle].strip()
        assert false in others and false not in caption
        assert item.pieces == [
            *(caption[a:b] for a, b in collection.sentences(i)[0][:2]),
            false,
            *(caption[a:b] for a, b in collection.sentences(i)[0][2:]),
        ]
    assert with_false_sentences(collection, drawn(collection, seed=3)) == wrong
    assert with_false_sentences(collection, drawn(collection, seed=4)) != wrong


def test_robustness_reports_the_drop(tiny_clip, make_dataset, tmp_path) -> None:
    dataset = str(make_dataset(10))
    found = evaluate("robustness", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    ways = ("image_retrieval_recall@1", "text_retrieval_recall@1")
    drop = np.mean([found[way] - found[f"wrong_{way}"] for way in ways])
    assert found["drop"] == pytest.approx(drop)
    given = tmp_path / "false.jsonl"
    rows = [{"image": i, "sentence": "An empty field."} for i in range(10)]
    given.write_text("\n".join(map(json.dumps, rows)))
    same = evaluate("robustness", [str(tiny_clip)], dataset, CONFIG, false_sentences=given)[0]
    assert same.metrics["image_retrieval_recall@5"] == found["image_retrieval_recall@5"]
    given.write_text(json.dumps(rows[0]))
    with pytest.raises(InputError, match=r"no false sentence for 9 of 10 images \(first: 1\)"):
        evaluate("robustness", [str(tiny_clip)], dataset, CONFIG, false_sentences=given)


def test_the_drop_is_of_recall_at_1_whatever_is_asked() -> None:
    """Three captions at their images; with a false sentence, two of them at the next one."""
    axes = torch.eye(3).tolist()
    right = {f"Image {i}.": axes[i] for i in range(3)}
    wrong = {f"No. Image {i}.": axes[j] for i, j in enumerate((0, 2, 1))}
    false = {"": dict.fromkeys(range(3), "No.")}
    embedder: Any = SetByHand(right | wrong, axes)
    for ks in ((3,), (3, 1)):
        found = robustness(embedder, three_images(), config(recall_at=ks), false_sentences=false)
        assert found["drop"] == pytest.approx(2 / 3)
        ways = ("image_retrieval_recall", "text_retrieval_recall")
        names = [f"{way}@{k}" for way in ways for k in ks]
        drops = ["drop", "drop_error"]
        assert list(found) == [*names, *(f"wrong_{name}" for name in names), *drops]
        # by image: 0, 1 and 1, so a variance of 1/3 over 3
        assert found["drop_error"] == pytest.approx(1 / 3)
        assert found["wrong_image_retrieval_recall@3"] == 1


def test_types_by_hand() -> None:
    """Of three images two have a false colour and the last two a false place. The colour hides image
    0 from its caption and its caption from it; the place changes nothing."""
    axes = torch.eye(3).tolist()
    texts = {f"Image {i}.": axes[i] for i in range(3)}
    texts |= {"Red. Image 0.": [-0.5, 1.0, 0.0], "Red. Image 1.": axes[1]}
    texts |= {f"Left. Image {i}.": axes[i] for i in (1, 2)}
    embedder: Any = SetByHand(texts, axes)
    found = robustness(
        embedder, three_images(), config(recall_at=(1,)),
        false_sentences={"colour": {0: "Red.", 1: "Red."}, "place": {1: "Left.", 2: "Left."}},
    )  # fmt: skip
    ways = ("image_retrieval_recall@1", "text_retrieval_recall@1")
    assert found == pytest.approx(
        dict.fromkeys(ways, 1.0)
        | {f"place_wrong_{way}": 1.0 for way in ways}
        # image 1 finds the caption of image 0 first: of equal scores the first counts
        | {"colour_wrong_image_retrieval_recall@1": 0.5, "colour_wrong_text_retrieval_recall@1": 0}
        | {"colour_drop": 0.75, "colour_drop_error": 0.25, "colour_images": 2.0}
        | {"place_drop": 0.0, "place_drop_error": 0.0, "place_images": 2.0}
        # parts 1/4, 1/8 and 0 of the images: 3/2 of the squares around 1/8, each 1/8 off
        | {"drop": 0.375, "drop_error": math.sqrt(1.5 * 2 / 64)}
    )
    assert shown("colour_drop", 0.75) == shown("colour_drop_error", 0.75) == "75.00"
    assert heading("place_wrong_image_retrieval_recall@1") == "place wrong T2I R@1"


def test_scenes_have_a_false_sentence_of_every_type(built, scenes, tiny_clip) -> None:
    truth = scenes / "ground_truth.parquet"
    collection = DatasetCollection(str(built), CONFIG)
    found = read_false_sentences(truth, collection, seed=1)
    assert list(found) == ["attribute", "object", "place", "background"]  # none tells a relation
    for kind, sentences in found.items():
        for number, sentence in sentences.items():
            assert sentence not in collection.captions[number][0], (kind, sentence)
    assert set(found["attribute"]) == set(found["place"]) == set(range(24))
    assert read_false_sentences(truth, collection, seed=1) == found
    assert read_false_sentences(truth, collection, seed=2) != found
    measured = evaluate("robustness", [str(tiny_clip)], str(built), CONFIG, false_sentences=truth)
    metrics = measured[0].metrics
    drops = [metrics[f"{kind}_drop"] for kind in found]
    assert metrics["drop"] == pytest.approx(np.mean(drops))
    assert [metrics[f"{kind}_images"] for kind in found] == [len(each) for each in found.values()]
    part = DatasetCollection(str(built), config(limit=5))
    assert set(read_false_sentences(truth, part, seed=1, limited=True)["place"]) == set(range(5))
    with pytest.raises(InputError, match=r"tells of image '.*', which dataset does not have .5 im"):
        read_false_sentences(truth, part, seed=1)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"image": 0, "sentence": null}'], "a sentence or a type is no text"),
        (['{"image": 0.5, "sentence": "No."}'], "image 0.5 is no whole number and no name"),
        (['{"image": true, "sentence": "No."}'], "image true is no whole number and no name"),
        (['{"image": 7, "sentence": "No."}'], r"tells of image 7, which three does not have .3 im"),
        (['{"image": "x.jpg", "sentence": "No."}'], "tells of image 'x.jpg', which three"),
        (['{"image": 0, "sentence": "No."}'] * 2, "two false sentences for image 0; keep one"),
        (['{"image": "0.jpg", "sentence": "No.", "type": "place"}'], "1 false sentence of type"),
        (
            [f'{{"image": {i}, "sentence": "No."}}' for i in range(3)]
            + ['{"image": 0, "sentence": "No.", "type": "place"}'],
            "some lines have a type and some have none",
        ),
        ([], "no false sentence for 3 of 3 images"),
        (["[]"], "wanted JSON lines"),
    ],
)
def test_files_of_another_form(tmp_path, lines, message) -> None:
    path = tmp_path / "false.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=message):
        read_false_sentences(path, three_images(), seed=0)


def test_a_table_that_is_no_truth_of_scenes(tmp_path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"path": ["0.jpg"]}), path)
    with pytest.raises(InputError, match="not the ground truth of scenes"):
        read_false_sentences(path, three_images(), seed=0)


def test_a_dataset_with_negatives(scenes, tiny_clip, tmp_path) -> None:
    """Of the same images under other folders' names, by their file names alone."""
    captions = scenes / "captions.jsonl"
    run_build(
        scenes / "images", tmp_path / "false", captions=captions, recipe="captions-only", limit=8,
        overrides=["negatives.enabled=true"],
    )  # fmt: skip
    collection = DatasetCollection(str(tmp_path / "false"), CONFIG)
    found = read_false_sentences(tmp_path / "false", collection, seed=1)
    rows = {row.source_path: row.extra["negatives"] for row in Dataset(str(tmp_path / "false"))}
    for kind, sentences in found.items():
        for number, sentence in sentences.items():
            made = rows[collection.names[number]]
            assert sentence in [each["text"] for each in made if each["kind"] == kind]
    wanted: dict[str, set[str]] = {}
    for name, made in rows.items():
        for each in made:
            wanted.setdefault(each["kind"], set()).add(name)
    assert {kind: {collection.names[n] for n in each} for kind, each in found.items()} == {
        kind: names for kind, names in wanted.items() if len(names) > 1
    }
    assert len(wanted["attribute"]) > 1 and len(found) < len(wanted)  # one has a single image
    again = [read_false_sentences(tmp_path / "false", collection, seed=seed) for seed in (1, 2)]
    assert again[0] == found and again[1] != found
    collection.names = [f"{number}" for number in range(8)]
    with pytest.raises(InputError, match="tells of image"):
        read_false_sentences(tmp_path / "false", collection, seed=1)
    run_build(
        scenes / "images", tmp_path / "plain", captions=captions, recipe="captions-only", limit=3
    )
    with pytest.raises(InputError, match=r"no false sentences; build it with .*negatives.enabled"):
        read_false_sentences(tmp_path / "plain", collection, seed=1)


def test_names_are_found_by_the_file_name_alone_either_way(tmp_path) -> None:
    collection = three_images()
    collection.names = ["a/0.jpg", "a/1.jpg", "b/2.jpg"]
    path = tmp_path / "false.jsonl"
    names = ("0.jpg", "x/1.jpg", "b/2.jpg")
    path.write_text("".join(f'{{"image": "{each}", "sentence": "No."}}\n' for each in names))
    found = read_false_sentences(path, collection, seed=0)
    assert found == {"": {0: "No.", 1: "No.", 2: "No."}}
    collection.names = ["a/0.jpg", "b/0.jpg", "b/2.jpg"]
    with pytest.raises(InputError, match="tells of image '0.jpg', which"):
        read_false_sentences(path, collection, seed=0)


def test_a_sentence_that_is_true_of_the_image_is_not_drawn() -> None:
    collection = three_images()
    collection.captions = [("A dog.",)] * 3
    collection.sentences = lambda index: [[(0, 6)]]
    with pytest.raises(InputError, match="is false of it, since its own captions hold them all"):
        drawn(collection, seed=0)
