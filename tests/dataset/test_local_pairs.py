"""Which pairs of a row training and evaluation use."""

from __future__ import annotations

from glit.dataset.local_pairs import local_pairs
from glit.dataset.reader import Dataset


def test_pairs_where_the_whole_image_wins_are_left_out(make_dataset) -> None:
    def global_wins_first(index: int, row) -> None:
        row["pairs"][0]["global_wins"] = True

    group = Dataset(make_dataset(2, change=global_wins_first)).row_group(0)
    assert [pair.similarity for pair in local_pairs(group, 0)] == [
        pair.similarity for pair in group.pairs_of(0)[1:]
    ]
    assert len(local_pairs(group, 0)) == 3


def test_a_pair_is_its_sentence_and_its_region(make_dataset) -> None:
    group = Dataset(make_dataset(2)).row_group(0)
    row = group[1]
    for pair, local in zip(row.pairs, local_pairs(group, 1), strict=True):
        sentence = row.sentences[pair.sentence]
        assert local.sentence == sentence.text
        assert local.token_span == (sentence.token_start, sentence.token_end)
        assert local.box_xyxy == row.regions[pair.region].box.xyxy


def test_out_of_window_spans_become_empty(make_dataset) -> None:
    def leave_window(index: int, row) -> None:
        row["sentences"][row["pairs"][0]["sentence"]]["in_window"] = False

    found = local_pairs(Dataset(make_dataset(1, change=leave_window)).row_group(0), 0)
    assert found[0].token_span == (0, 0)
    assert found[1].token_span != (0, 0)
