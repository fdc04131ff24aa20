"""The mini models' byte-level BPE: trained on captions of training scenes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, trainers
from transformers import CLIPTokenizer

from glit.scenes import draw_scene, write_caption
from tools.mini.pool import POOL_SEED

_NUM_CAPTIONS = 3000
_NUM_MERGES = 700
CONTEXT = 77


def caption_texts() -> list[str]:
    """Captions the vocabulary is trained on: training scenes of all three levels."""
    texts: list[str] = []
    for index in range(_NUM_CAPTIONS):
        for level in ("easy", "normal", "hard"):
            caption = write_caption(draw_scene(POOL_SEED, index, level=level))
            texts += [caption.text, caption.short]
    return texts


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """A CLIP tokenizer with its own small vocabulary, written to ``folder`` and read back.

    Order of the vocabulary as in OpenAI's: bytes, bytes that end a word, merges, the two marks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    blank = CLIPTokenizer().backend_tokenizer
    blank.model = models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>")
    alphabet = sorted(set(_byte_characters()))
    trainer = trainers.BpeTrainer(
        vocab_size=512 + _NUM_MERGES,
        initial_alphabet=alphabet,
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    blank.train_from_iterator(caption_texts(), trainer)
    merges = _merges(blank)
    tokens = alphabet + [f"{c}</w>" for c in alphabet]
    tokens += [a + b for a, b in merges]
    tokens = [*dict.fromkeys(tokens), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT)
    tokenizer.save_pretrained(folder)
    lines = ["#version: 0.2", *(f"{a} {b}" for a, b in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    return CLIPTokenizer.from_pretrained(folder)


def _merges(trained: Tokenizer) -> Any:
    return [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]


def _byte_characters() -> list[str]:
    """The 256 printable characters byte-level BPE writes bytes with (GPT-2's table)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(moved)) for b in range(256)]
