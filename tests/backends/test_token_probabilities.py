"""How sure the captioner was, token by token, against one plain pass over the finished caption."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glit.images import decode
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.captioners.token_probabilities import tokens_of_text
from glit.models.backends.captioners.transformers_generate import TransformersCaptioner
from glit.models.weights import resolve
from glit.stages.caption import CaptionConfig


@pytest.fixture(scope="module")
def pictures(scenes):
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:3]]


@pytest.fixture(scope="module")
def captioner():
    return CAPTIONERS["transformers"].make(
        CaptionConfig(device="cpu"), resolve("mini-captioner"), "Describe it."
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_those_of_a_pass_over_the_finished_caption(captioner, pictures, temperature):
    for picture in pictures:
        [answer] = captioner.caption([picture], seeds=[3], temperature=temperature)
        assert answer.tokens is not None
        assert answer.tokens[-1].char_end == len(answer.text)
        batch = dict(captioner.prepare(picture))
        start = batch["input_ids"].shape[1]
        ids = captioner._processor.tokenizer(answer.text, add_special_tokens=False)["input_ids"]
        if len(ids) != len(answer.tokens):
            assert temperature  # a sampled caption may be spelt in other tokens than the shortest
            continue
        batch["input_ids"] = torch.cat([batch["input_ids"], torch.tensor([ids])], dim=1)
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        with torch.inference_mode():
            logits = captioner._model(**batch).logits[0, start - 1 : -1].float()
        expected = torch.log_softmax(logits, dim=1)[torch.arange(len(ids)), ids]
        found = [token.logprob for token in answer.tokens]
        np.testing.assert_allclose(found, expected.numpy(), atol=2e-3)


def test_a_caption_of_a_batch_ends_where_its_own_end_token_is(captioner, pictures):
    together = captioner.caption(pictures, seeds=[0, 0, 0], temperature=0.0)
    alone = [captioner.caption([each], seeds=[0], temperature=0.0)[0] for each in pictures]
    for one, other in zip(together, alone, strict=True):
        assert one.text == other.text and one.tokens and other.tokens
        assert [t.char_end for t in one.tokens] == [t.char_end for t in other.tokens]
        np.testing.assert_allclose(
            [t.logprob for t in one.tokens], [t.logprob for t in other.tokens], atol=2e-3
        )


def test_pieces_that_do_not_make_up_the_text_have_no_probabilities(captioner):
    tokenizer = captioner._processor.tokenizer
    ids = tokenizer("A red ring.", add_special_tokens=False)["input_ids"]
    logprobs = [-0.1] * len(ids)
    assert tokens_of_text(tokenizer, ids, logprobs, tokenizer.decode(ids)) is not None
    assert tokens_of_text(tokenizer, ids, logprobs, "A blue ring.") is None
    assert tokens_of_text(tokenizer, ids, [float("nan")] * len(ids), "A red ring.") is None


def test_padding_behind_an_end_token_is_not_counted():
    captioner = TransformersCaptioner.__new__(TransformersCaptioner)
    captioner._model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[9, 8]))
    assert [captioner._length(ids) for ids in ([1, 2, 9, 0, 0], [8], [1, 2])] == [2, 0, 2]
