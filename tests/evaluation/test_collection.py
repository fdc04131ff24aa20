"""What is measured: datasets and annotations as collections of images and captions."""

from __future__ import annotations

import pytest
from evaluating import CONFIG, config
from PIL import Image

from glit.errors import InputError
from glit.evaluation.collection import (
    DatasetCollection,
    open_collection,
)
from glit.evaluation.run import evaluate
from glit.images import decode


def test_annotation_files(tiny_clip, tmp_path) -> None:
    for i in range(3):
        (tmp_path / "caption").mkdir(exist_ok=True)
        (tmp_path / "image").mkdir(exist_ok=True)
        (tmp_path / "caption" / f"{i}.txt").write_text(f"A red house. It has {i} doors.")
        colour = (80 * i, 10, 200 - 60 * i)
        Image.new("RGB", (40, 30), colour).save(tmp_path / "image" / f"{i}.jpg")
    collection = open_collection(str(tmp_path), CONFIG, kind="urban1k")
    assert decode(collection.image(2)).shape == (30, 40, 3)
    assert [len(s) for s in collection.sentences(0)] == [2]
    for task in ("retrieval", "robustness", "caption-quality"):
        found = evaluate(task, [str(tiny_clip)], str(tmp_path), CONFIG, kind="urban1k")
        assert found[0].dataset == "urban1k"
    with pytest.raises(InputError, match="no image has a local pair, which localize measures"):
        evaluate("localize", [str(tiny_clip)], str(tmp_path), CONFIG, kind="urban1k")


def test_the_limit_takes_the_first_images(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(20, rows_per_group=3))
    assert len(DatasetCollection(dataset, config(limit=7)).captions) == 7
