"""Recall, average precision and localisation on matrices set by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.evaluation.localisation import centre_inside, chance, first_hit
from glit.evaluation.ranking import average_precision, best_items, first_hit_rank, recall_at
from glit.evaluation.relevance import Relevance, by_text, joint_relevance


def ranks(similarity, relevant, chunk: int = 4096) -> list[int]:
    score = torch.tensor(similarity)
    return first_hit_rank(
        score.__getitem__, num_gallery=score.shape[1], relevance=relevant, chunk=chunk
    ).tolist()


def precisions(similarity, relevance: Relevance, k: int, chunk: int = 4096) -> list[float]:
    score = torch.as_tensor(similarity)
    return average_precision(
        score.__getitem__, num_gallery=score.shape[1], relevance=relevance, k=k, chunk=chunk
    ).tolist()


def test_rank_of_the_only_right_answer() -> None:
    assert ranks([[0.9, 0.5, 0.7], [0.1, 0.2, 0.3]], [[2], [2]]) == [1, 0]


def test_the_best_of_several_right_answers_counts() -> None:
    assert ranks([[0.9, 0.5, 0.7, 0.6]], [[1, 3]]) == [2]


def test_of_equal_similarities_the_first_item_comes_first() -> None:
    assert ranks([[0.5, 0.5, 0.5]], [[1]]) == [1]
    assert ranks([[0.5, 0.5, 0.5]], [[1, 2]]) == [1]
    assert ranks([[0.5, 0.5, 0.5]], [[0]]) == [0]


@settings(max_examples=60)
@given(
    queries=st.integers(1, 9),
    items=st.integers(1, 12),
    chunk=st.integers(1, 5),
    seed=st.integers(0, 999),
)
def test_blocks_give_what_sorting_gives(queries: int, items: int, chunk: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.integers(0, 4, size=(queries, items)) / 4  # many ties
    relevant = [
        generator.choice(items, size=generator.integers(1, items + 1), replace=False).tolist()
        for _ in range(queries)
    ]
    wanted = []
    for row, right in zip(matrix, relevant, strict=True):
        order = sorted(range(items), key=lambda i: (-row[i], i))
        wanted.append(min(order.index(i) for i in right))
    assert ranks(matrix.tolist(), relevant, chunk=chunk) == wanted


def test_recall_at_several_depths() -> None:
    assert recall_at(np.array([0, 0, 4, 24, 60]), [1, 5, 25, 50]) == {
        1: 0.4,
        5: 0.6,
        25: 0.8,
        50: 0.8,
    }


def test_relevance_of_several_captions_an_image() -> None:
    to_image, to_text = by_text([0, 0, 1, 1], ["a", "b", "c", "d"], 2)
    assert to_image == [[0], [0], [1], [1]]
    assert to_text == [[0, 1], [2, 3]]


def test_a_caption_two_images_share_is_right_for_both() -> None:
    to_image, to_text = by_text([0, 1, 2], ["same", "other", "same"], 3)
    assert to_image == to_text == [[0, 2], [1], [0, 2]]


def test_average_precision_by_hand() -> None:
    """Hits at ranks 1 and 3; at rank 2; none; ranks 1 and 2 of four that are right, K = 3."""
    first = torch.tensor([[5, 0, 7], [1, 2, 3], [0, 1, 2], [4, 5, 9]])
    scores = torch.zeros(4, 10).scatter(1, first, torch.tensor([[3.0, 2, 1]] * 4))
    relevance = [[5, 7], [2], [9], [4, 5, 6, 7]]
    for chunk in (1, 4, 4096):
        found = precisions(scores, relevance, 3, chunk)
        assert found == pytest.approx([(1 + 2 / 3) / 2, 0.5, 0.0, 2 / 3])
    assert precisions(scores[:1, :6], [[0, 5]], 9) == [1.0]  # six items are all


def test_joint_relevance() -> None:
    """Two samples with whole (0, 1) and local (2, 3) items; both local sentences are equal."""
    texts, for_image, for_text = joint_relevance(["A", "B", "x", "x"], [0, 1, 0, 1])
    assert texts == ["A", "B", "x"]
    assert for_image == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert for_text == [[0, 2], [1, 3], [0, 1, 2, 3]]


def test_a_caption_that_is_its_own_sentence_is_one_text() -> None:
    texts, for_image, for_text = joint_relevance(["A", "B", "A"], [0, 1, 0])
    assert texts == ["A", "B"]
    assert for_image == [[0], [1], [0]]
    assert for_text == [[0, 2], [1]]


def as_published(similarity: np.ndarray, sample: list[int], k: int = 10) -> float:
    """GOAL's mean of precisions with the owners put right: one query and one item a row."""
    total = 0.0
    for query, row in enumerate(similarity):
        wanted = {i for i, owner in enumerate(sample) if owner == sample[query]}
        hits, score = 0, 0.0
        for rank, item in enumerate(np.argsort(-row, kind="stable")[:k], start=1):
            if item in wanted:
                hits += 1
                score += hits / rank
        total += score / len(wanted)
    return total / len(similarity)


@given(wholes=st.integers(1, 9), seed=st.integers(0, 999))
def test_the_joint_set_without_copies_is_the_published_measure(wholes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sample = [*range(wholes), *generator.choice(wholes, size=int(generator.integers(1, 9)))]
    similarity = generator.permutation(len(sample) ** 2).reshape(len(sample), -1).astype(np.float32)
    texts, for_image, for_text = joint_relevance([f"text {i}" for i in range(len(sample))], sample)
    assert len(texts) == len(sample)
    for matrix, relevance in ((similarity, for_image), (similarity.T, for_text)):
        found = np.mean(precisions(matrix, relevance, 10))
        assert found == pytest.approx(as_published(matrix, sample))


def test_patch_centres_inside_a_box() -> None:
    """Centres of a 2 x 2 grid of 10-pixel patches are at 5 and 15; the end is exclusive."""
    boxes = torch.tensor([[0.0, 0.0, 6.0, 20.0], [5.0, 5.0, 15.0, 15.0], [6.0, 6.0, 9.0, 9.0]])
    inside = centre_inside(boxes, patch_size=10, grid=2)
    assert inside.tolist() == [
        [True, False, True, False],
        [True, False, False, False],
        [False, False, False, False],
    ]


def test_rank_of_the_first_patch_inside() -> None:
    patches = torch.eye(4)[None].expand(3, 4, 4)
    text = torch.tensor([[0.1, 0.9, 0.5, 0.3]]).expand(3, 4)
    inside = torch.tensor(
        [[False, True, False, False], [True, False, False, True], [False, False, False, False]]
    )
    assert first_hit(patches, text, inside).tolist() == [0, 2, np.inf]


def test_chance() -> None:
    found = chance(np.array([0, 1, 4]), num_patches=4, ks=[1, 4, 9])
    assert found == pytest.approx({1: (0 + 0.25 + 1) / 3, 4: 2 / 3, 9: 2 / 3})


def test_of_equal_scores_the_first_items_come_first() -> None:
    items, scores = best_items(torch.tensor([[0.5] * 6, [0.25, 0.75, 0.5, 0.5, 0.75, 0.5]]), 3)
    assert items.tolist() == [[0, 1, 2], [1, 4, 2]]
    assert scores.tolist() == [[0.5] * 3, [0.75, 0.75, 0.5]]
