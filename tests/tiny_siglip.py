"""Tiny SigLIP models with random weights and tokenizers of their kind, as folders."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from random_dataset import WORDS

CONTEXT = 24


def write_siglip(made: Path) -> Path:
    """A SiglipModel with 32-pixel images, 24 text positions and a tokenizer of its kind."""
    import sentencepiece
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor
    from transformers import SiglipTokenizer as TheirTokenizer

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 3), model_writer=written, vocab_size=80,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (made / "spm.model").write_bytes(written.getvalue())
    tokenizer = TheirTokenizer(
        str(made / "spm.model"), model_max_length=CONTEXT, model_input_names=["input_ids"]
    )  # as published: no mask
    (made / "spm.model").unlink()
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 2}  # fmt: skip
    config = SiglipConfig(
        text_config={**sizes, "vocab_size": tokenizer.vocab_size, "projection_size": 16,
                     "max_position_embeddings": CONTEXT},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SiglipModel(config)
        with torch.no_grad():
            model.logit_scale.fill_(4.77)  # a factor of 118, as SigLIP's own
            model.logit_bias.fill_(-12.9)
        model.save_pretrained(made)
    images = SiglipImageProcessor(size={"height": 32, "width": 32})
    SiglipProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(made)
    return made
