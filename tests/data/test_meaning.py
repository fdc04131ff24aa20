"""Near-duplicates among embeddings: those of all pairs, found in clusters and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from glit.data import meaning
from glit.data.meaning import near_duplicates


def unit(values):
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def made(number, width=32, seed=0):
    """Random directions; every third is a slightly moved copy of an earlier one."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(number, width))
    for row in range(2, number, 3):
        values[row] = values[rng.integers(row)] + rng.normal(size=width) * 0.05
    return unit(values)


def slowly(embeddings, least):
    """What the docstring says, one image after the other."""
    found, kept = {}, []
    for row, vector in enumerate(embeddings.astype(np.float64)):
        cosines = [round(float(vector @ embeddings[each]), 6) for each in kept]
        same = next((n for n, value in enumerate(cosines) if value >= least), None)
        if same is None:
            kept.append(row)
        else:
            found[row] = kept[same], cosines[same]
    return found


@pytest.mark.parametrize("number", [0, 1, 7, 500])
def test_equals_the_slow_way_whatever_the_blocks(number, monkeypatch):
    embeddings = made(number)
    wanted = slowly(embeddings, 0.95)
    assert near_duplicates(embeddings, least=0.95) == wanted
    monkeypatch.setattr(meaning, "_BLOCK", 64)
    monkeypatch.setattr(meaning, "_COLUMNS", 50)
    assert near_duplicates(embeddings, least=0.95) == wanted
    assert number < 500 or len(wanted) > 100


def test_clusters_lose_few_and_invent_none(monkeypatch):
    embeddings = made(3000)
    everything = near_duplicates(embeddings, least=0.95)
    monkeypatch.setattr(meaning, "CLUSTER", 500)
    found = near_duplicates(embeddings, least=0.95)
    assert found == near_duplicates(embeddings, least=0.95)
    assert found.keys() <= everything.keys() and len(found) > 0.9 * len(everything)


def test_copies_of_one_image_leave_one():
    same = np.repeat(unit(np.ones((1, 8))), 3000, axis=0)
    found = near_duplicates(same, least=1.0)
    assert len(found) == 2999 and {kept for kept, _ in found.values()} == {0}
