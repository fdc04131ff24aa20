"""CLIP folders with random weights and a tokenizer made on the spot, for benchmarks and tests.

Random weights of the right shape cost the same time as trained ones; they say nothing about
quality, and whoever prints a figure made with them says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|startoftext|>", "<|endoftext|>")


ClipShape = Mapping[str, Any]
"""Arguments of ``CLIPConfig``, whose defaults are the sizes of ViT-B/32."""

VIT_B_16: ClipShape = {
    "vision_config": {"patch_size": 16}, "text_config": {}, "projection_dim": 512,
}  # fmt: skip
"""CLIP ViT-B/16, 149.6 M parameters with its own vocabulary of 49,408."""

_TOWER = {
    "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
TINY: ClipShape = {
    "vision_config": {**_TOWER, "image_size": 32, "patch_size": 8}, "text_config": _TOWER,
    "projection_dim": 16,
}  # fmt: skip
"""Small enough for a unit test: thousands of steps a minute on one core."""


def write_random_clip(
    folder: Path,
    shape: ClipShape,
    *,
    seed: int,
    corpus: Iterable[str],
    vocabulary: int = 400,
    embedding_rows: int = 0,
) -> Path:
    """Write a ``CLIPModel.from_pretrained`` folder: random weights, tokenizer, image processor.

    Args:
        folder: where; made if need be.
        shape: the model's sizes.
        seed: decides the weights.
        corpus: texts the byte-pair tokenizer is learned from.
        vocabulary: its size, at least 514 bytes and byte endings are always in.
        embedding_rows: token embeddings to allot (49,408 for CLIP's cost); 0 for the vocabulary's.
    """
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    folder.mkdir(parents=True, exist_ok=True)
    num_tokens = write_clip_tokenizer(folder, corpus, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = {"projection_dim": shape["projection_dim"]}
        ids = {
            "vocab_size": max(embedding_rows, num_tokens), "bos_token_id": num_tokens - 2,
            "eos_token_id": num_tokens - 1, "pad_token_id": num_tokens - 1,
        }  # fmt: skip
        config: Any = CLIPConfig(
            text_config={**shape["text_config"], **ids, **width},
            vision_config={**shape["vision_config"], **width},
            **width,
        )
        CLIPModel(config).cpu().save_pretrained(folder)
    side = config.vision_config.image_size
    CLIPImageProcessor(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}
    ).save_pretrained(folder)
    return folder


def write_clip_tokenizer(
    folder: Path, corpus: Iterable[str], vocabulary: int, **settings: Any
) -> int:
    """Learn byte pairs as CLIP's tokenizer has them, and save it; returns the number of tokens.

    Order of the vocabulary as in OpenAI's: bytes, bytes that end a word, merges, the two marks.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[1], end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words = Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *(letter + "</w>" for letter in alphabet)]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    pieces += [a + b for a, b in merges]
    ordered = [*dict.fromkeys(pieces), *SPECIAL_TOKENS]
    learned_merges: Any = merges  # pairs, which the signature does not mention
    vocab = {piece: index for index, piece in enumerate(ordered)}
    CLIPTokenizer(vocab=vocab, merges=learned_merges, **settings).save_pretrained(folder)
    return len(ordered)
