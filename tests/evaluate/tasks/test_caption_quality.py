"""The mean cosine of images and their captions."""

from __future__ import annotations

from evaluating import CONFIG, config

from glit.evaluate.run import evaluate


def test_caption_quality_over_a_sample(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(9))
    everything = evaluate("caption-quality", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    assert everything["pairs"] == 9 and -1 < everything["mean_cosine"] < 1
    drawn = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert drawn[0].metrics["pairs"] == 4
    again = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert again[0].metrics == drawn[0].metrics
