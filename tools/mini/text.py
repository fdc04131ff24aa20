"""The mini models' byte-level BPE: trained on captions of training scenes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from transformers import CLIPTokenizer

from glit.bench.random_clip import write_clip_tokenizer
from glit.scenes import draw_scene, write_caption
from tools.mini.pool import POOL_SEED

_NUM_CAPTIONS = 3000
_NUM_MERGES = 700
CONTEXT = 77


def caption_texts() -> Iterator[str]:
    """Captions the vocabulary is trained on: training scenes of all three levels."""
    for index in range(_NUM_CAPTIONS):
        for level in ("easy", "normal", "hard"):
            caption = write_caption(draw_scene(POOL_SEED, index, level=level))
            yield from (caption.text, caption.short)


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """A CLIP tokenizer with its own small vocabulary, written to ``folder`` and read back."""
    write_clip_tokenizer(folder, caption_texts(), 512 + _NUM_MERGES, model_max_length=CONTEXT)
    learned = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    lines = ["#version: 0.2", *(" ".join(pair) for pair in learned["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocabulary = json.dumps(learned["vocab"], ensure_ascii=False)
    (folder / "vocab.json").write_text(vocabulary, "utf-8")
    return CLIPTokenizer.from_pretrained(folder)
