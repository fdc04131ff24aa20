"""Every rule by property, and those beyond the papers' by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scored import regions, scored

from glit.data.records import Region, Scores
from glit.errors import RecipeError
from glit.rules import RULES
from glit.rules.pairing import Pairing
from glit.rules.rules import Centred, DualSoftmax, Mutual, Sinkhorn

COSINES = st.integers(-100, 100).map(lambda hundredths: hundredths / 100)
PLAIN = [kind() for kind in RULES.values()]
WEIGHED = [
    kind(phrase_weight=0.5, detector_bonus=4.0) for kind in (Centred, DualSoftmax, Sinkhorn, Mutual)
]


@st.composite
def samples(draw) -> tuple[Scores, tuple[Region, ...]]:
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    return scored(
        draw(arrays(np.float64, shape, elements=COSINES)),
        draw(arrays(np.float64, shape[0], elements=COSINES)),
        draw(arrays(np.float64, shape, elements=COSINES)),
    ), regions(*draw(st.tuples(*[st.sampled_from(["yolos", "quadrant"])] * shape[1])))


def moved(scores: Scores, sentences, columns) -> Scores:
    return Scores(
        similarity=scores.similarity[np.ix_(sentences, columns)],
        image_similarity=scores.image_similarity[sentences],
        phrase_similarity=scores.phrase_similarity[np.ix_(sentences, columns)],
    )


@pytest.mark.parametrize("rule", [*PLAIN, *WEIGHED], ids=repr)
@settings(max_examples=40)
@given(sample=samples(), random=st.randoms(use_true_random=False))
def test_permuted_sentences_and_regions_give_permuted_values(rule, sample, random):
    scores, found = sample
    sentences, columns = (list(range(number)) for number in scores.similarity.shape)
    random.shuffle(sentences)
    random.shuffle(columns)
    before = rule(scores, found)
    after = rule(moved(scores, sentences, columns), tuple(found[k] for k in columns))
    np.testing.assert_allclose(
        after.value, before.value[np.ix_(sentences, columns)], rtol=1e-9, atol=1e-12
    )
    ties = len({*np.round(before.value, 9).ravel()}) < before.value.size
    if not ties:
        assert after.null.tolist() == before.null[sentences].tolist()


@pytest.mark.parametrize("rule", [*PLAIN, *WEIGHED], ids=repr)
@settings(max_examples=40)
@given(sample=samples())
def test_one_finite_pair_a_sentence_those_with_a_region_first(rule, sample):
    scores, found = sample
    pairs = Pairing(rule=rule)(scores, found, ())
    values = rule(scores, found)
    assert sorted(pair.sentence for pair in pairs) == list(range(len(scores.similarity)))
    assert np.isfinite(values.value).all()
    for pair in pairs:
        assert pair.region == values.value[pair.sentence].argmax()
        assert pair.similarity == scores.similarity[pair.sentence, pair.region]
    order = [(p.global_wins, -values.value[p.sentence, p.region], p.sentence) for p in pairs]
    assert order == sorted(order)
    assert Pairing(rule=rule)(scores, found, ()) == pairs


@pytest.mark.parametrize("rule", PLAIN, ids=repr)
def test_all_equal_goes_to_the_first_region_and_the_first_sentence(rule):
    scores = scored(np.full((3, 4), 0.3), np.full(3, 0.2))
    pairs = Pairing(rule=rule)(scores, regions(*["yolos"] * 4), ())
    assert [p.region for p in pairs] == [0, 0, 0]
    assert [p.sentence for p in pairs if not p.global_wins] == sorted(
        p.sentence for p in pairs if not p.global_wins
    )


@pytest.mark.parametrize("rule", [Mutual(), Centred()], ids=repr)
@given(sample=samples())
def test_a_hopeless_region_takes_no_sentence(rule, sample):
    scores, found = sample
    hopeless = np.full((len(scores.similarity), 1), -1.5, dtype=np.float32)
    more = scored(np.hstack([scores.similarity, hopeless]), scores.image_similarity)
    before, after = rule(scores, found), rule(more, (*found, *regions("yolos")))
    assert after.value.argmax(axis=1).tolist() == before.value.argmax(axis=1).tolist()


def test_centred_by_hand():
    """Means 0.6 and 0.3 over two regions and the image; the light is as close to everything."""
    scores = scored([[0.6, 0.6], [0.5, 0.1]], [0.6, 0.3])
    np.testing.assert_allclose(
        Centred(logit_scale=1)(scores, ()).value, [[0.0, 0.0], [0.2, -0.2]], atol=1e-7
    )
    pairs = Pairing(rule=Centred())(scores, regions("yolos", "yolos"), ())
    assert [(p.sentence, p.region) for p in pairs] == [(1, 0), (0, 0)]


def test_dual_softmax_by_hand():
    """A factor of ln 2 makes the shares powers of two: cosines 1 and 0 share as 2 to 1."""
    rule = DualSoftmax(logit_scale=2, sharpness=float(np.log(2)) / 2)
    value = rule(scored([[1.0, 0.0], [0.0, 0.0]]), ()).value
    np.testing.assert_allclose(value, [[4 / 9, 1 / 6], [1 / 6, 1 / 4]], rtol=1e-7)


@pytest.mark.parametrize("key", ["detector_bonus", "grounding_weight"])
def test_bonuses_are_logits_before_the_softmax(key):
    """Fifteen logits of cosines outweigh a bonus of one, and not one of twenty."""
    scores, kinds = scored([[0.35, 0.20], [0.20, 0.20]], [0.0, 0.0]), regions("quadrant", "yolos")
    scores = dataclasses.replace(scores, agreement=np.array([[0, 1]] * 2, np.float32))
    for rule, wanted in ((DualSoftmax, [0, 1]), (Sinkhorn, [0, 0])):
        values = [
            rule(logit_scale=100, **{key: bonus})(scores, kinds).value for bonus in (1.0, 20.0)
        ]
        assert [value[0].argmax() for value in values] == wanted
        assert max(value.max() for value in values) <= 1
    closer = scored([[0.1, 0.3], [0.1, 0.1]], [0.3, 0.1])
    closer = dataclasses.replace(closer, agreement=scores.agreement)
    null = [Sinkhorn(logit_scale=40, **{key: bonus})(closer, kinds).null for bonus in (1.0, 4.0)]
    assert [each[0] for each in null] == [True, False]


def test_the_bonus_of_the_softmaxes_by_hand():
    """Logits 1 and 0 with a bonus of 1 are 1 and 1; a bonus keeps the null column's chance."""
    kinds = regions("quadrant", "yolos")
    rule = DualSoftmax(logit_scale=1, sharpness=1.0, detector_bonus=1.0)
    np.testing.assert_allclose(rule(scored([[1.0, 0.0]]), kinds).value, [[0.5, 0.5]], rtol=1e-6)
    found = Sinkhorn(logit_scale=40, detector_bonus=1.0)
    scores = scored([[0.2, 0.1], [0.9, 0.1]], [0.9, 0.1])
    assert found(scores, kinds).null.tolist() == [True, False]


def test_sinkhorn_gives_every_sentence_and_region_one_and_knows_null():
    scores = scored([[0.9, 0.1], [0.5, 0.5]], [0.2, 0.9])
    found = Sinkhorn(logit_scale=40, iterations=200)(scores, ())
    assert found.null.tolist() == [False, True]
    assert found.value[0].argmax() == 0 and found.value[0, 0] > 0.9
    assert (found.value.sum(axis=1) <= 1 + 1e-6).all()
    assert (found.value.sum(axis=0) <= 1 + 1e-6).all()


def test_sinkhorn_by_hand():
    """Two sentences and one region, p, q = (3 +- root 7) / 8: p q = 1/32 and p + q = 3/4.

    Logits against the region are ln p / (1 - p) and ln q / (1 - q), against the whole image 1,
    which is a factor of a whole column and so scaled away. The null row has their mean, ln 1/3, so
    a share of 1/4. Every row then sums to 1, and the region's column, p + q + 1/4, to 1: it is the
    plan.
    """
    p, q = ((3 + sign * 7**0.5) / 8 for sign in (1, -1))
    odds = np.log([[p / (1 - p)], [q / (1 - q)]])
    found = Sinkhorn(logit_scale=4, sharpness=1.0)(scored(odds / 4, [0.25, 0.25]), ())
    np.testing.assert_allclose(found.value, [[p], [q]], rtol=1e-6)
    assert found.null.tolist() == [False, True]


def test_mutual_by_hand():
    """Both sentences want region 0; it wants the second."""
    found = Mutual()(scored([[0.5, 0.1], [0.7, 0.2]]), ())
    assert found.null.tolist() == [True, False]


def test_phrases_and_the_bonus_by_hand():
    scores = scored([[0.2, 0.4]], [0.0], [[0.8, 0.0]])
    kinds = regions("yolos", "quadrant")
    np.testing.assert_allclose(
        Mutual(logit_scale=2, phrase_weight=0.5)(scores, kinds).value, [[1.0, 0.4]]
    )
    np.testing.assert_allclose(
        Mutual(logit_scale=1, detector_bonus=0.1)(scores, kinds).value, [[0.3, 0.4]], rtol=1e-6
    )


@pytest.mark.parametrize("kind", [Centred, DualSoftmax, Sinkhorn, Mutual])
def test_options_that_cannot_be(kind):
    with pytest.raises(RecipeError, match=r"\[pair\] phrase_weight: found 1.5, want 0 to 1"):
        kind(phrase_weight=1.5)
    with pytest.raises(RecipeError, match=r"score.phrases = true"):
        kind(phrase_weight=0.5)(scored([[0.1]]), regions("yolos"))


@pytest.mark.parametrize("options", [{"sharpness": 0.0}, {"iterations": 0}, {"logit_scale": 0.0}])
def test_sinkhorns_options_that_cannot_be(options):
    with pytest.raises(RecipeError, match=next(iter(options))):
        Sinkhorn(**options)
