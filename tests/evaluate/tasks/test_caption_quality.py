"""The mean cosine of images and their captions."""

from __future__ import annotations

import statistics

import pytest
from evaluating import CONFIG, config

from glit.evaluate.collection import DatasetCollection
from glit.evaluate.encode import load_embedder
from glit.evaluate.run import evaluate


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
