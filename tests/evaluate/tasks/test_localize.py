"""Patches most like a sentence, against the box of its region."""

from __future__ import annotations

from evaluating import CONFIG, config

from glit.evaluate.run import evaluate


def test_localize_whole_image_regions_always_hit(tiny_clip, make_dataset) -> None:
    def whole(index: int, row) -> None:
        for region in row["regions"]:
            region.update(x0=0.0, y0=0.0, x1=64.0, y1=48.0)

    found = evaluate("localize", [str(tiny_clip)], str(make_dataset(6, change=whole)), CONFIG)
    assert found[0].metrics["localisation@1"] == found[0].metrics["chance@1"] == 1.0
    assert found[0].metrics["pairs"] == 6


def test_localize_over_all_pairs(tiny_clip, make_dataset) -> None:
    found = evaluate(
        "localize", [str(tiny_clip)], str(make_dataset(5)), config(localize_pairs="all")
    )[0].metrics
    assert found["pairs"] == 20
    assert found["localisation@1"] <= found["localisation@15"]
    assert 0 < found["chance@1"] < found["chance@15"] <= 1
