"""The mean cosine of images and their captions."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from evaluating import CONFIG, SetByHand, config, three_images

from glit.evaluation.collection import DatasetCollection
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.caption_quality import caption_quality


def test_three_pairs_by_hand() -> None:
    """Table I's figure of cosines 1, 0.6 and -0.1: mean 0.5; deviations 0.5, 0.1 and -0.6, whose
    squares sum to 0.62, over two degrees of freedom and three pairs."""
    texts = {"Image 0.": [1.0, 0.0], "Image 1.": [0.6, 0.8], "Image 2.": [-0.1, 0.99**0.5]}
    embedder: Any = SetByHand(texts, [[1.0, 0.0]] * 3)
    found = caption_quality(embedder, three_images(), CONFIG)
    error = (0.62 / 2 / 3) ** 0.5
    assert found == pytest.approx({"mean_cosine": 0.5, "standard_error": error, "pairs": 3})


def test_caption_quality_over_a_sample(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(9))
    everything = evaluate("caption-quality", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    embedder, collection = load_embedder(str(tiny_clip), CONFIG), DatasetCollection(dataset, CONFIG)
    images = embedder.images(collection, [(i, None) for i in range(9)])
    texts = embedder.texts([caption for (caption,) in collection.captions])
    cosines = [float(image @ text) for image, text in zip(images, texts, strict=True)]
    assert everything == {
        "pairs": 9,
        "mean_cosine": pytest.approx(statistics.mean(cosines)),
        "standard_error": pytest.approx(statistics.stdev(cosines) / 3),
    }
    drawn = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert drawn[0].metrics["pairs"] == 4
    again = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert again[0].metrics == drawn[0].metrics
