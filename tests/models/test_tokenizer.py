"""The tokenizers that are read without transformers: CLIP's own and those of the mini models."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.models.tokenizer import (
    FileTokenizer,
    TextTokenizer,
    clip_tokenizer,
    load_tokenizer,
    open_span_tokenizer,
    tokenizer_hash,
)
from glit.models.weights import resolve
from glit.recipes.resources import mini_model

NAMES = ("clip", "grounder", "matcher")
TOKENIZERS = {name: (mini_model(name), TextTokenizer(mini_model(name))) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@given(
    text=st.text() | st.lists(st.sampled_from(["a red circle", "<|endoftext|>", " "])).map("".join)
)
def test_they_encode_as_transformers_does(name, text):
    path, full = TOKENIZERS[name]
    assert isinstance(open_span_tokenizer(path), FileTokenizer)
    assert open_span_tokenizer(path).encode([text]) == full.encode([text])


def test_the_definition_is_the_same_to_the_byte():
    for path, full in TOKENIZERS.values():
        assert open_span_tokenizer(path).definition() == full.definition()
        backend = load_tokenizer(path).backend_tokenizer
        assert full.definition() == backend.to_str()


def test_the_vocabulary_of_clip_is_open_clips():
    from open_clip.tokenizer import SimpleTokenizer

    judge, ours = SimpleTokenizer(), clip_tokenizer()
    texts = [
        "A red ring lies ON the floor.", "It's 3.5 km; don't -- stop!", "Zürich, naïve, 東京 🙂",
        "", "a" * 300, "<|notspecial|> 12345", "tab\tand\nline",
    ]  # fmt: skip
    for text in texts:
        assert ours.encode([text]) == [judge.encode(text)], text
    assert ours.encode(texts * 20) == [judge.encode(text) for text in texts] * 20


def test_transformers_reads_the_vocabulary_of_clip_as_glit_does(tmp_path):
    """A dataset without a matcher trains any CLIP, for they are one tokenizer by its hash."""
    (tmp_path / "tokenizer.json").write_text(clip_tokenizer().definition(), encoding="utf-8")
    special = dict.fromkeys(("eos_token", "pad_token", "unk_token"), "<|endoftext|>")
    settings = {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", **special}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokenizer_hash(tmp_path) == tokenizer_hash(resolve("clip-tokenizer").path)
