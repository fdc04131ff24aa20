"""An image against the mean of a caption's sentences."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from evaluating import CONFIG, SetByHand

from glit.evaluation.collection import (
    DatasetCollection,
    Text,
    all_captions,
)
from glit.evaluation.encode import load_embedder
from glit.evaluation.scorers.cosine import single
from glit.evaluation.scorers.sentence_average import SentenceAverage


def test_two_sentences_at_right_angles_by_hand() -> None:
    """FAST-GOAL Table XV. Their mean is at 45 degrees to both; the whole text is not looked at."""
    texts = {"A. B.": [-1.0, 0.0], "A.": [1.0, 0.0], "B.": [0.0, 1.0]}
    embedder: Any = SetByHand(texts, [[1.0, 0.0], [0.6, 0.8]])
    scorer, text = SentenceAverage(), Text(text="A. B.", sentences=((0, 2), (3, 5)))
    images = single(embedder.images(None, [(0, None), (1, None)]))
    found = scorer.score(scorer.texts(embedder, [text]), images)
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[half, 0.6 * half + 0.8 * half]]))


def test_sentence_average(tiny_clip, make_dataset) -> None:
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(str(make_dataset(3)), CONFIG)
    texts, owner = all_captions(collection)
    assert owner == [0, 1, 2]
    found = SentenceAverage().texts(embedder, texts)
    caption = collection.captions[1][0]
    pieces = [caption[a:b] for a, b in collection.sentences(1)[0]]
    assert len(pieces) == 4 and all(piece.endswith(".") for piece in pieces)
    wanted = F.normalize(embedder.texts(pieces).mean(dim=0), dim=-1)
    torch.testing.assert_close(found.vector_NVD[1, 0], wanted)
