from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glit.config import MatchConfig
from glit.records import Box, Drop, Region, Sample, Sentence
from glit.stages.match import MatchStage, best_pairs


def test_best_pairs_by_hand():
    pairs = best_pairs(np.array([[0.1, 0.3], [0.5, 0.2], [0.3, 0.3]]))
    assert [(p.sentence, p.region, p.similarity) for p in pairs] == [
        (1, 0, 0.5),
        (0, 1, 0.3),
        (2, 0, 0.3),
    ]


def test_a_sentence_the_whole_image_wins_comes_after_all_local_pairs():
    pairs = best_pairs(np.array([[0.9, 0.1], [0.2, 0.4]]), np.array([0.95, 0.3]))
    assert [(p.sentence, p.global_wins) for p in pairs] == [(1, False), (0, True)]


def test_a_region_that_is_only_as_good_as_the_whole_image_gives_no_local_pair():
    pairs = best_pairs(np.array([[0.4, 0.2], [0.1, 0.3]]), np.array([0.4, 0.2]))
    assert [(p.sentence, p.global_wins) for p in pairs] == [(1, False), (0, True)]


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 8), st.integers(1, 8)),
        elements=st.floats(-1, 1, width=32),
    )
)
def test_pairs_name_every_sentence_once_with_its_maximum(similarity):
    pairs = best_pairs(similarity)
    assert sorted(p.sentence for p in pairs) == list(range(len(similarity)))
    assert all(p.similarity == similarity[p.sentence].max() for p in pairs)
    values = [p.similarity for p in pairs]
    assert values == sorted(values, reverse=True)


class Directions:
    """A matcher whose embeddings are known: the box's left edge and the sentence's number."""

    def embed_regions(self, images, boxes):
        if any(image.sum() == 0 for image in images):
            raise RuntimeError("black")
        return [np.eye(8, dtype=np.float32)[each[:, 0].astype(int)] for each in boxes]

    def embed_sentences(self, sentences):
        rows = np.eye(8, dtype=np.float32)[[int(s) for s in sentences]]
        rows[[s == "7" for s in sentences]] = np.nan
        return rows


class Pictures:
    def each(self, samples):
        yield from (np.full((4, 4, 3), s.num_bytes, np.uint8) for s in samples)


def make(texts, lefts, value=1):
    sentences = tuple(
        Sentence(
            text=t,
            char_start=0,
            char_end=1,
            token_start=1,
            token_end=2,
            in_window=True,
            truncated=False,
        )
        for t in texts
    )
    regions = tuple(
        Region(box=Box(x0=x, y0=0, x1=x + 1, y1=1), score=1, label="", source="yolos")
        for x in lefts
    )
    return Sample(
        sample_id="0" * 64, source_path="x", width=8, height=8, num_bytes=value,
        sentences=sentences, regions=regions,
    )  # fmt: skip


def run(samples, **config):
    return list(
        MatchStage(MatchConfig(batch_size=3, **config), Directions()).process(samples, Pictures())
    )


def test_every_sample_gets_its_own_rows_whatever_the_batches():
    samples = [make(["1", "2"], [2, 1, 0]), make(["0"], [0]), make(["3", "0"], [3, 0])]
    outcomes = run(samples)
    assert [[(p.sentence, p.region) for p in o.matches.pairs] for o in outcomes] == [
        [(0, 1), (1, 0)],
        [(0, 0)],
        [(0, 0), (1, 1)],
    ]
    assert outcomes[0].matches.similarity == (0, 1, 0, 1, 0, 0)


def test_nan_and_broken_images_become_drops_and_nothing_shifts():
    outcomes = run(
        [make(["1"], [1]), make(["7"], [1]), make(["1"], [1], value=0), make(["2"], [2])]
    )
    assert [getattr(o, "reason", "") for o in outcomes] == ["", "not_finite", "model_error", ""]
    assert isinstance(outcomes[1], Drop)


def test_with_the_global_rule_the_whole_image_competes():
    (outcome,) = run([make(["0", "1"], [1, 2])], global_competes=True)
    assert [(p.sentence, p.region, p.global_wins) for p in outcome.matches.pairs] == [
        (1, 0, False),
        (0, 0, True),
    ]
    assert len(outcome.matches.similarity) == 4
