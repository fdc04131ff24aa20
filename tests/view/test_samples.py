"""Rows as JSON."""

from __future__ import annotations

import dataclasses

import numpy as np

from glit.data.records import Box, Pair, Region
from glit.view.samples import MOST_REGIONS, sample


def test_a_row_comes_over_whole(opened):
    for number in range(len(opened)):
        row = opened[number]
        found = sample(row, number=number, image="")
        assert "".join(text for text, _ in found["parts"]) == row.caption.text
        assert [text for text, s in found["parts"] if s >= 0] == [s.text for s in row.sentences]
        assert [region["box"] for region in found["regions"]] == [
            [round(value, 2) for value in region.box.xyxy] for region in row.regions
        ]
        assert np.allclose(found["matrix"], row.similarity, atol=6e-5)
        assert [(p["s"], p["r"], p["none"]) for p in found["pairs"]] == [
            (p.sentence, p.region, p.global_wins) for p in row.pairs
        ]
        assert found["hidden"] == 0


def test_of_very_many_regions_those_in_pairs_stay(opened):
    row = opened[1]
    num = 5 * MOST_REGIONS
    regions = tuple(
        Region(box=Box(x0=i, y0=0, x1=i + 1, y1=1), score=1, label="", source="sam")
        for i in range(num)
    )
    similarity = np.zeros((len(row.sentences), num), np.float32)
    similarity[:, 3] = 0.5
    pairs = (Pair(sentence=0, region=num - 1, similarity=float("nan"), global_wins=False),)
    many = dataclasses.replace(
        row, regions=regions, similarity=similarity, phrase_similarity=None, pairs=pairs
    )
    found = sample(many, number=0, image="")
    assert found["hidden"] == num - MOST_REGIONS == num - len(found["regions"])
    assert {3, num - 1} <= set(found["numbers"]) and found["numbers"] == sorted(found["numbers"])
    (pair,) = found["pairs"]
    assert found["regions"][pair["r"]]["box"] == [num - 1, 0, num, 1]
    assert pair["sim"] is None  # no number, and the page says so
    assert len(found["matrix"][0]) == MOST_REGIONS
