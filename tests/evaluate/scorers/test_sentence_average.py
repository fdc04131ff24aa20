"""An image against the mean of a caption's sentences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from evaluating import CONFIG

from glit.evaluate.collection import (
    DatasetCollection,
    all_captions,
)
from glit.evaluate.encode import load_embedder
from glit.evaluate.scorers.sentence_average import SentenceAverage


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
