"""The architecture of the laptop recipe's captioner, made small and random: it loads and speaks."""

from __future__ import annotations

import numpy as np
import pytest

from glit.backends.captioners import CAPTIONERS
from glit.models.weights import resolve
from glit.stages.caption import CaptionConfig

TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{m['role'].capitalize()}}:{% for c in m['content'] %}"
    "{% if c['type']=='text' %}{{c['text']}}{% elif c['type']=='image' %}<image>{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    folder = tmp_path_factory.mktemp("vlm")
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    places = [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<|im_start|>", eos_token="<end_of_utterance>",
        pad_token="<|im_start|>",
        additional_special_tokens=["<fake_token_around_image>", "<image>", "<global-img>", *places],
    )  # fmt: skip
    tokenizer.image_token = "<image>"
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    Idefics3Processor(pictures, tokenizer, image_seq_len=4, chat_template=TEMPLATE).save_pretrained(
        folder
    )
    pad = tokenizer.pad_token_id
    text = {
        "model_type": "llama", "vocab_size": len(tokenizer), "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 2048, "pad_token_id": pad,
        "bos_token_id": pad, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    torch.manual_seed(0)
    Idefics3ForConditionalGeneration(
        Idefics3Config(
            vision_config=vision, text_config=text, scale_factor=2, pad_token_id=pad,
            image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        )
    ).save_pretrained(folder)  # fmt: skip
    return folder


def test_images_of_mixed_shapes_are_captioned_as_they_would_be_alone(checkpoint):
    config = CaptionConfig(max_tokens=8, device="cpu")
    captioner = CAPTIONERS["transformers"].make(config, resolve(str(checkpoint)), "Describe it.")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (*s, 3), np.uint8) for s in ((40, 60), (60, 40), (40, 60))]
    together = captioner.caption(images, seeds=[0, 0, 0], temperature=0.0)
    assert [caption.cut for caption in together] == [True] * 3
    assert len({caption.text for caption in together}) > 1
    for image, caption in zip(images, together, strict=True):
        assert captioner.caption([image], seeds=[0], temperature=0.0) == [caption]
