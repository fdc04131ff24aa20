"""Texts laid out in rows: nothing lost, nothing shared, same hidden states as alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CLIPTextConfig, CLIPTextModel

from glit.models.clip.text_rows import assign_rows, lay_out
from glit.models.clip.text_tokens import tokens_in_rows


def in_plain_loops(lengths: list[int], width: int) -> list[list[int]]:
    """First-fit decreasing as it is written in books: row and first slot of each text."""
    places, used = [[0, 0] for _ in lengths], []
    for text in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((r for r, slots in enumerate(used) if slots + lengths[text] <= width), len(used))
        if row == len(used):
            used.append(0)
        places[text] = [row, used[row]]
        used[row] += lengths[text]
    return places


@given(st.lists(st.integers(1, 50), max_size=40))
def test_rows_are_filled_first_fit(lengths: list[int]) -> None:
    assert assign_rows(lengths, 50).tolist() == in_plain_loops(lengths, 50)


@given(st.lists(st.lists(st.integers(1, 99), min_size=2, max_size=30), min_size=1, max_size=12))
def test_every_text_can_be_read_back(texts: list[list[int]]) -> None:
    rows = lay_out(texts, context=248, pad_id=0)
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


@settings(max_examples=300)
@given(st.data(), st.integers(8, 300))
def test_no_row_is_wider_than_the_window(data, context: int) -> None:
    lengths = data.draw(st.lists(st.integers(2, context), min_size=1, max_size=12))
    rows = lay_out([list(range(n)) for n in lengths], context=context, pad_id=0)
    width = rows.input_ids_RW.shape[1]
    assert max(lengths) <= width <= context
    assert width % 8 == 0 or width == context


@pytest.mark.parametrize("context", range(8, 301))
def test_a_full_window_is_encoded_whatever_its_length(towers, context: int) -> None:
    """A window of 77 and 73 tokens: 80 slots would be more than CLIP's embeddings take."""
    tower = towers(context)
    ids = [[1, *[5] * (length - 2), 2] for length in (context, max(2, context - 5), 4)]
    found = tokens_in_rows(tower, lay_out(ids, context=context, pad_id=0))
    assert bool(found.isfinite().all())


@pytest.fixture(scope="module")
def towers():
    """Text towers of a few numbers, with a window of the length that is asked for."""
    sizes = {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "vocab_size": 9,
    }  # fmt: skip

    def make(context: int) -> CLIPTextModel:
        return CLIPTextModel(CLIPTextConfig(max_position_embeddings=context, **sizes)).eval()

    return make


def test_slots_look_at_their_own_text_and_back() -> None:
    rows = lay_out([[5, 6, 7], [8, 9]], context=248, pad_id=0)
    mask = rows.attention_mask()[0, 0]
    assert mask.shape == (8, 8)
    assert mask[2].tolist() == [True, True, True] + [False] * 5
    assert mask[4].tolist() == [False] * 3 + [True, True] + [False] * 3
    assert bool(mask.any(dim=-1).all())


def test_no_texts() -> None:
    rows = lay_out([], context=248, pad_id=0)
    assert rows.input_ids_RW.shape == (0, 8)
    assert torch.equal(rows.offset_T, torch.zeros(0, dtype=torch.long))
