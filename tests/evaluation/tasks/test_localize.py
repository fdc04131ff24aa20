"""Patches most like a sentence, against the box of its region."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from evaluating import CONFIG, config, run_of

from glit.evaluation.collection import DatasetCollection
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.training.objectives import BetaClip


def test_localize_whole_image_regions_always_hit(tiny_clip, make_dataset) -> None:
    def whole(index: int, row) -> None:
        for region in row["regions"]:
            region.update(x0=0.0, y0=0.0, x1=64.0, y1=48.0)

    found = evaluate("localize", [str(tiny_clip)], str(make_dataset(6, change=whole)), CONFIG)
    assert found[0].metrics["localisation@1"] == found[0].metrics["chance@1"] == 1.0
    assert found[0].metrics["pairs"] == 6


@torch.no_grad()
def test_localize_over_all_pairs(tiny_clip, make_dataset) -> None:
    """Against patches sorted pair by pair, and chance as a product of misses."""
    dataset = str(make_dataset(5))
    found = evaluate("localize", [str(tiny_clip)], dataset, config(localize_pairs="all"))[0].metrics
    collection = DatasetCollection(dataset, CONFIG)
    embedder = load_embedder(str(tiny_clip), CONFIG)
    side, grid = embedder.encoder.patch_size, embedder.encoder.grid
    centres = [((x + 0.5) * side, (y + 0.5) * side) for y in range(grid) for x in range(grid)]
    patches = torch.cat(list(embedder.patches(collection, range(5))))
    hits: dict[int, list[bool]] = {1: [], 15: []}
    floor: dict[int, list[float]] = {1: [], 15: []}
    for i in range(5):
        for pair in collection.pairs(i):
            x0, y0, x1, y1 = embedder.box(collection, i, pair.box_xyxy)
            inside = {n for n, (x, y) in enumerate(centres) if x0 <= x < x1 and y0 <= y < y1}
            order = (patches[i] @ embedder.texts([pair.sentence])[0]).argsort(descending=True)
            for k in hits:
                hits[k].append(bool(inside & set(order[:k].tolist())))
                misses = [(grid**2 - len(inside) - n) / (grid**2 - n) for n in range(k)]
                floor[k].append(1 - math.prod(max(0.0, miss) for miss in misses))
    assert found["pairs"] == len(hits[1]) == 20
    for k in hits:
        assert found[f"localisation@{k}"] == pytest.approx(np.mean(hits[k]))
        assert found[f"chance@{k}"] == pytest.approx(np.mean(floor[k]))


@pytest.mark.parametrize("objective", ["beta-clip", "siglip"])
def test_patches_are_those_that_the_objective_trained(
    objective, tiny_clip, make_dataset, tmp_path
) -> None:
    """beta-clip trains patches that attend to themselves alone in the last layer."""
    dataset = make_dataset(4)
    own = {"options": BetaClip(max_phrases=0)} if objective == "beta-clip" else {}
    run = run_of(objective, tiny_clip, dataset, tmp_path / "run", **own)
    embedder = load_embedder(str(run), CONFIG)
    collection = DatasetCollection(str(dataset), CONFIG)
    pixels = torch.stack([embedder.fitted(collection, (index, None)) for index in range(4)])
    unmixed = objective == "beta-clip"
    with torch.no_grad():
        wanted, _ = embedder.encoder.encode_images(pixels, num_tokens=4, unmixed=unmixed)
        found = torch.cat(list(embedder.patches(collection, range(4))))
        torch.testing.assert_close(found, embedder.encoder.project_patches(wanted))
