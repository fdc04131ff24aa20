"""Retrieval with a false sentence in every caption."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from evaluating import CONFIG, SetByHand, config, three_images

from glit.errors import InputError
from glit.evaluate.collection import (
    DatasetCollection,
)
from glit.evaluate.run import evaluate
from glit.evaluate.tasks import robustness
from glit.evaluate.tasks.robustness import read_false_sentences, with_false_sentences


def test_a_false_sentence_in_the_middle(make_dataset) -> None:
    collection = DatasetCollection(str(make_dataset(5)), CONFIG)
    wrong = with_false_sentences(collection, seed=3)
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
    assert with_false_sentences(collection, seed=3) == wrong
    assert with_false_sentences(collection, seed=4) != wrong


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
    false = dict.fromkeys(range(3), "No.")
    embedder: Any = SetByHand(right | wrong, axes)
    for ks in ((3,), (3, 1)):
        found = robustness(embedder, three_images(), config(recall_at=ks), false_sentences=false)
        assert found["drop"] == pytest.approx(2 / 3)
        ways = ("image_retrieval_recall", "text_retrieval_recall")
        names = [f"{way}@{k}" for way in ways for k in ks]
        assert list(found) == [*names, *(f"wrong_{name}" for name in names), "drop"]
        assert found["wrong_image_retrieval_recall@3"] == 1


def test_a_false_sentence_that_is_no_text_is_refused(tmp_path) -> None:
    (tmp_path / "false.jsonl").write_text('{"image": 0, "sentence": null}')
    with pytest.raises(InputError, match="a sentence is no text"):
        read_false_sentences(tmp_path / "false.jsonl", 1)
