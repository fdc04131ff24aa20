"""Sentences against patches, by hand and in a measurement."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from evaluating import CONFIG, config

from glit.evaluation.collection import (
    DatasetCollection,
)
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.evaluation.scorers.protocol import Vectors
from glit.evaluation.scorers.sentence_patches import SentencePatches


def test_sentence_patches_by_hand() -> None:
    """Two texts of one and two sentences against two images of two patches."""
    a, b, c = torch.eye(3)
    images = Vectors(
        vector_NVD=torch.stack([torch.stack([a, b]), torch.stack([b, (a + c) / 2**0.5])]),
        valid_NV=torch.ones(2, 2, dtype=torch.bool),
    )
    texts = Vectors(
        vector_NVD=torch.stack([torch.stack([a, 0 * a]), torch.stack([b, c])]),
        valid_NV=torch.tensor([[True, False], [True, True]]),
    )
    found = SentencePatches().score(texts, images)
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[1, half], [0.5, (1 + half) / 2]]))


@torch.no_grad()
def test_retrieval_by_sentences_and_patches(monkeypatch, tiny_clip, make_dataset) -> None:
    """More than one vector a side, in blocks, against a loop over all of them."""
    dataset = str(make_dataset(7))
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(dataset, CONFIG)
    patches = torch.cat(list(embedder.patches(collection, range(7))))
    scores = torch.empty(7, 7)
    for t in range(7):
        caption = collection.captions[t][0]
        sentences = embedder.texts([caption[a:b] for a, b in collection.sentences(t)[0]])
        for i in range(7):
            scores[t, i] = (sentences @ patches[i].T).amax(dim=1).mean()
    own = scores.diagonal()
    wanted = [
        float(((scores > own[:, None]).sum(dim=1) < 1).float().mean()),
        float(((own[:, None] < scores.T).sum(dim=1) < 1).float().mean()),
    ]
    for chunk, most_kept in ((2, 1 << 26), (2, 0), (4096, 0)):
        monkeypatch.setattr(
            import_module("glit.evaluation.tasks.retrieval"), "MOST_KEPT", most_kept
        )
        settings = config(scorer="sentence-patches", chunk_size=chunk)
        found = evaluate("retrieval", [str(tiny_clip)], dataset, settings)[0].metrics
        both = [found[f"{way}_retrieval_recall@1"] for way in ("image", "text")]
        assert both == pytest.approx(wanted)
