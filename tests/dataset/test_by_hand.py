"""Pairs that a person decided, among those of a rule."""

from __future__ import annotations

import numpy as np

from glit.data.records import Pair, Scores
from glit.dataset.by_hand import with_by_hand

SIMILARITY = np.array(
    [[0.1, 0.2], [0.5, 0.3], [0.4, 0.9], [0.7, 0.6], [0.2, 0.2], [0.3, 0.1]], np.float32
)


def by_rule(sentence: int, region: int) -> Pair:
    value = float(SIMILARITY[sentence, region])
    return Pair(
        sentence=sentence, region=region, similarity=value, global_wins=False, probability=0.5
    )


def test_a_persons_pairs_come_first_by_similarity_and_those_without_a_region_last():
    pairs = [by_rule(*each) for each in ((4, 0), (0, 1), (5, 1), (3, 0), (1, 0), (2, 1))]
    decided = [
        {"sentence": sentence, "region": region, "scored": True}
        for sentence, region in ((0, 0), (1, 1), (2, -1), (4, -1), (5, 0))
    ]
    made = with_by_hand(
        pairs, decided, Scores(similarity=SIMILARITY, image_similarity=SIMILARITY[:, 0])
    )
    assert [(pair.sentence, pair.region, pair.global_wins) for pair in made] == [
        (1, 1, False),
        (5, 0, False),
        (0, 0, False),
        (3, 0, False),
        (2, 1, True),
        (4, 0, True),
    ]
    assert [pair.probability for pair in made] == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    np.testing.assert_allclose([pair.similarity for pair in made], [0.3, 0.3, 0.1, 0.7, 0.9, 0.2])
