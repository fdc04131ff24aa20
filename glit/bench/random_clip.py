"""CLIP folders with random weights and a tokenizer made on the spot, for benchmarks and tests.

Random weights of the right shape cost the same time as trained ones; they say nothing about
quality, and whoever prints a figure made with them says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|startoftext|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipShape:
    """The sizes of a CLIPModel."""

    image_size: int
    """Side of the input square, pixels."""
    patch_size: int
    """Side of a patch, pixels."""
    vision_width: int
    vision_layers: int
    vision_heads: int
    text_width: int
    text_layers: int
    text_heads: int
    projection: int
    """Width of the shared space."""
    context: int = 77
    """Text positions."""


VIT_B_16 = ClipShape(
    image_size=224, patch_size=16, vision_width=768, vision_layers=12, vision_heads=12,
    text_width=512, text_layers=12, text_heads=8, projection=512,
)  # fmt: skip
"""CLIP ViT-B/16, 149.6 M parameters with its own vocabulary of 49,408."""

TINY = ClipShape(
    image_size=32, patch_size=8, vision_width=32, vision_layers=2, vision_heads=2,
    text_width=32, text_layers=2, text_heads=2, projection=16,
)  # fmt: skip
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
        config = CLIPConfig(
            text_config={
                "vocab_size": max(embedding_rows, num_tokens),
                "hidden_size": shape.text_width,
                "intermediate_size": 4 * shape.text_width,
                "num_hidden_layers": shape.text_layers,
                "num_attention_heads": shape.text_heads,
                "max_position_embeddings": shape.context,
                "projection_dim": shape.projection,
                "bos_token_id": num_tokens - 2,
                "eos_token_id": num_tokens - 1,
                "pad_token_id": num_tokens - 1,
            },
            vision_config={
                "hidden_size": shape.vision_width,
                "intermediate_size": 4 * shape.vision_width,
                "num_hidden_layers": shape.vision_layers,
                "num_attention_heads": shape.vision_heads,
                "image_size": shape.image_size,
                "patch_size": shape.patch_size,
                "projection_dim": shape.projection,
            },
            projection_dim=shape.projection,
        )
        CLIPModel(config).cpu().save_pretrained(folder)
    side = shape.image_size
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
