"""The papers' two rules, by hand and by property."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glit.data.records import Scores
from glit.rules.pairing import Pairing
from glit.rules.rules import Argmax, Lism


def scored(similarity, whole=None) -> Scores:
    similarity = np.array(similarity, dtype=np.float32)
    whole = np.full(len(similarity), -1) if whole is None else np.array(whole)
    return Scores(similarity=similarity, image_similarity=whole.astype(np.float32))


def pairs(rule, *scores):
    return [
        (p.sentence, p.region, round(p.similarity, 5), p.global_wins)
        for p in Pairing(rule=rule)(scored(*scores), (), ())
    ]


def test_argmax_by_hand():
    assert pairs(Argmax(), [[0.1, 0.3], [0.5, 0.2], [0.3, 0.3]]) == [
        (1, 0, 0.5, False),
        (0, 1, 0.3, False),
        (2, 0, 0.3, False),
    ]


def test_argmax_does_not_look_at_the_whole_image():
    assert pairs(Argmax(), [[0.1, 0.3]], [0.9]) == [(0, 1, 0.3, False)]


def test_lism_marks_what_the_whole_image_wins_and_puts_it_last():
    assert pairs(Lism(), [[0.9, 0.1], [0.2, 0.4]], [0.95, 0.3]) == [
        (1, 1, 0.4, False),
        (0, 0, 0.9, True),
    ]


def test_lism_gives_no_local_pair_for_a_region_only_as_good_as_the_whole_image():
    assert pairs(Lism(), [[0.4, 0.2], [0.1, 0.3]], [0.4, 0.2]) == [
        (1, 1, 0.3, False),
        (0, 0, 0.4, True),
    ]


COSINES = st.floats(-1, 1, width=32)


@st.composite
def any_scores(draw) -> Scores:
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 8)))
    return Scores(
        similarity=draw(arrays(np.float32, shape, elements=COSINES)),
        image_similarity=draw(arrays(np.float32, shape[0], elements=COSINES)),
    )


@pytest.mark.parametrize("rule", [Argmax(), Lism()])
@given(scores=any_scores())
def test_every_sentence_is_named_once_with_its_best_region(rule, scores):
    found = Pairing(rule=rule)(scores, (), ())
    assert sorted(p.sentence for p in found) == list(range(len(scores.similarity)))
    for pair in found:
        row = scores.similarity[pair.sentence]
        assert pair.similarity == row.max() and pair.region == row.argmax()
    order = [(p.global_wins, -p.similarity, p.sentence) for p in found]
    assert order == sorted(order)


@given(any_scores(), st.randoms(use_true_random=False))
def test_permuted_sentences_give_permuted_pairs(scores, random):
    order = list(range(len(scores.similarity)))
    random.shuffle(order)
    moved = Scores(
        similarity=scores.similarity[order], image_similarity=scores.image_similarity[order]
    )
    before = {(p.sentence, p.region, p.global_wins) for p in Pairing(rule=Lism())(scores, (), ())}
    after = {
        (order[p.sentence], p.region, p.global_wins) for p in Pairing(rule=Lism())(moved, (), ())
    }
    assert after == before


@given(any_scores())
def test_a_hopeless_region_changes_nothing(scores):
    """Worse than every other region of every sentence, and put last."""
    hopeless = np.full((len(scores.similarity), 1), -2, dtype=np.float32)
    more = Scores(
        similarity=np.concatenate([scores.similarity, hopeless], axis=1),
        image_similarity=scores.image_similarity,
    )
    assert Pairing(rule=Lism())(more, (), ()) == Pairing(rule=Lism())(scores, (), ())
