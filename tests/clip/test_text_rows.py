"""Texts laid out in rows: nothing lost, nothing shared, same hidden states as alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from glit.clip.text_rows import assign_rows, lay_out


@given(st.lists(st.integers(1, 50), max_size=40))
def test_rows_hold_every_text_once_and_fit(lengths: list[int]) -> None:
    rows = assign_rows(lengths, 50)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 50 for row in rows)


@given(st.lists(st.lists(st.integers(1, 99), min_size=2, max_size=30), min_size=1, max_size=12))
def test_every_text_can_be_read_back(texts: list[list[int]]) -> None:
    rows = lay_out(texts, pad_id=0)
    flat, positions = rows.input_ids_RW.flatten(), rows.position_ids_RW.flatten()
    owners = rows.text_id_RW.flatten()
    assert rows.input_ids_RW.shape[1] % 8 == 0
    assert int((owners >= 0).sum()) == sum(map(len, texts))
    for index, ids in enumerate(texts):
        start = int(rows.offset_T[index])
        end = start + int(rows.length_T[index])
        assert flat[start:end].tolist() == ids
        assert positions[start:end].tolist() == list(range(len(ids)))
        assert owners[start:end].tolist() == [index] * len(ids)


def test_slots_look_at_their_own_text_and_back() -> None:
    rows = lay_out([[5, 6, 7], [8, 9]], pad_id=0)
    mask = rows.attention_mask()[0, 0]
    assert mask.shape == (8, 8)
    assert mask[2].tolist() == [True, True, True] + [False] * 5
    assert mask[4].tolist() == [False] * 3 + [True, True] + [False] * 3
    assert bool(mask.any(dim=-1).all())


def test_no_texts() -> None:
    rows = lay_out([], pad_id=0)
    assert rows.input_ids_RW.shape == (0, 8)
    assert torch.equal(rows.offset_T, torch.zeros(0, dtype=torch.long))
