"""Sentences against patches, by hand and in a measurement."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from evaluating import CONFIG, config

from glit.errors import RecipeError
from glit.evaluation.collection import DatasetCollection, all_captions
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.evaluation.scorers.protocol import Vectors
from glit.evaluation.scorers.sentence_patches import SentencePatches


def test_sentence_patches_by_hand() -> None:
    """Two texts of one and two sentences against two images of two places; the wholes first."""
    a, b, c = torch.eye(3)
    images = Vectors(
        vector_NVD=torch.stack([torch.stack([a, a, b]), torch.stack([c, b, (a + c) / 2**0.5])]),
        valid_NV=torch.ones(2, 3, dtype=torch.bool),
    )
    texts = Vectors(
        vector_NVD=torch.stack([torch.stack([a, a, 0 * a]), torch.stack([b, b, c])]),
        valid_NV=torch.tensor([[True, True, False], [True, True, True]]),
    )
    half = 0.5**0.5
    by_places = torch.tensor([[1, half], [0.5, (1 + half) / 2]])
    by_wholes = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    for weight in (0.0, 0.25, 1.0):
        found = SentencePatches(global_weight=weight).score(texts, images)
        torch.testing.assert_close(found, (1 - weight) * by_places + weight * by_wholes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"global_weight": float("nan")}, "global_weight: found nan, want 0 to 1"),
        ({"global_weight": 1.5}, "global_weight: found 1.5, want 0 to 1"),
        ({"window": 0}, "window: found 0, want >= 1"),
    ],
)
def test_settings_that_cannot_be(settings, said) -> None:
    with pytest.raises(RecipeError, match=said):
        SentencePatches(**settings)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 2, 9])
def test_retrieval_by_sentences_and_patches(window, monkeypatch, tiny_clip, make_dataset) -> None:
    """More than one vector a side, in blocks, against a loop over all of them."""
    dataset = str(make_dataset(7))
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(dataset, CONFIG)
    patches = torch.cat(list(embedder.patches(collection, range(7))))
    side = embedder.encoder.grid
    size = min(window, side)
    corners = [(y, x) for y in range(side - size + 1) for x in range(side - size + 1)]
    whole_images = embedder.images(collection, embedder.wholes(collection))
    scores = torch.empty(7, 7)
    for t in range(7):
        caption = collection.captions[t][0]
        whole_text = embedder.texts([caption])[0]
        sentences = embedder.texts([caption[a:b] for a, b in collection.sentences(t)[0]])
        for i in range(7):
            grid = patches[i].reshape(side, side, -1)
            squares = [grid[y : y + size, x : x + size].mean(dim=(0, 1)) for y, x in corners]
            places = F.normalize(torch.stack(squares), dim=-1)
            best = (sentences @ places.T).amax(dim=1).mean()
            scores[t, i] = 0.6 * best + 0.4 * whole_text @ whole_images[i]
    own = scores.diagonal()
    wanted = [
        float(((scores > own[:, None]).sum(dim=1) < 1).float().mean()),
        float(((own[:, None] < scores.T).sum(dim=1) < 1).float().mean()),
    ]
    options = SentencePatches(global_weight=0.4, window=window)
    texts = options.texts(embedder, all_captions(collection)[0])
    found = options.score(texts, options.images(embedder, collection))
    torch.testing.assert_close(found, scores, atol=1e-5, rtol=0)
    for chunk, most_kept in ((2, 1 << 26), (2, 0), (4096, 0)):
        monkeypatch.setattr(
            import_module("glit.evaluation.tasks.retrieval"), "MOST_KEPT", most_kept
        )
        settings = config(scorer="sentence-patches", options=options, chunk_size=chunk)
        found = evaluate("retrieval", [str(tiny_clip)], dataset, settings)[0].metrics
        both = [found[f"{way}_retrieval_recall@1"] for way in ("image", "text")]
        assert both == pytest.approx(wanted)
