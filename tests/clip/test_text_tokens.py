"""Texts in rows have the features that they have alone, or else are run alone."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch
from transformers import CLIPModel
from transformers.models.clip.modeling_clip import CLIPEncoder

from glit.clip.encoder import ClipEncoder
from glit.clip.text_rows import lay_out
from glit.clip.text_tokens import tokens_alone, tokens_in_rows
from glit.runtime.verified_paths import FastPathWarning

pytestmark = pytest.mark.usefixtures("fresh_verdicts")
TEXTS = lay_out(
    [list(range(i, i + length)) for i, length in enumerate([3, 9, 5, 12, 2])], context=77, pad_id=0
)


@pytest.fixture
def model(tiny_clip):
    return CLIPModel.from_pretrained(tiny_clip)


def make_encoder(model):
    return ClipEncoder(model, mean=(0.5,) * 3, std=(0.2,) * 3)


def in_texts(flat):
    return flat[TEXTS.text_id_RW.flatten() >= 0]


def test_tokens_and_gradients_are_the_same_both_ways(model):
    found, gradients = [], []
    for tokens in (tokens_in_rows, tokens_alone):
        model.zero_grad()
        found.append(in_texts(tokens(model.text_model, TEXTS)))
        found[-1].square().sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert len(in_texts(torch.arange(TEXTS.input_ids_RW.numel()))) == 31
    torch.testing.assert_close(found[0], found[1])
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 20
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_with_this_transformers_texts_share_rows(model, attention):
    model.set_attn_implementation(attention)
    model.train()
    encoder = make_encoder(model)
    assert encoder._text_tokens is tokens_in_rows
    assert all(module.training for module in model.text_model.modules())


@pytest.mark.parametrize("change", ["raises", "gives other numbers"])
def test_with_another_transformers_each_text_is_alone(model, monkeypatch, change):
    wanted = make_encoder(model).encode_texts(TEXTS)
    real = CLIPEncoder.forward

    def forward(self, inputs_embeds, attention_mask=None, is_causal=True, **named):
        """Another release: it refuses masks but its own, or takes no notice of others."""
        if change == "raises" and not is_causal:
            raise TypeError("unexpected keyword argument 'is_causal'")
        return real(self, inputs_embeds, None, is_causal=True, **named)

    monkeypatch.setattr(CLIPEncoder, "forward", forward)
    monkeypatch.setattr("glit.runtime.verified_paths._verdicts", {})
    with pytest.warns(FastPathWarning, match=f"transformers {version('transformers')}") as seen:
        encoder = make_encoder(model)
        make_encoder(model)
    assert len(seen) == 1 and encoder._text_tokens is tokens_alone
    tokens, embeddings = encoder.encode_texts(TEXTS)
    torch.testing.assert_close(in_texts(tokens), in_texts(wanted[0]))
    torch.testing.assert_close(embeddings, wanted[1])
