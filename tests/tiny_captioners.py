"""Random captioners of today's architectures, made small; templates and tokens are named as theirs."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np

PROMPT = "Describe it."
_HEAD = 64
"""vLLM's attention on a CPU knows heads of 32 and more."""
THINKS = (
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and "
    "enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}"
)
"""As Qwen3.5's template: it thinks unless it is told not to."""


def _turns(start: str, image: str, end: str) -> str:
    return (
        f"{{% for m in messages %}}{start}{{{{m.role}}}}\n{{% for c in m.content %}}"
        f"{{% if c.type == 'text' %}}{{{{c.text}}}}{{% else %}}{image}{{% endif %}}{{% endfor %}}"
        f"{end}\n{{% endfor %}}"
    )


def _tokenizer(special: list[str], eos: str, pad: str, **named: str) -> tuple[Any, dict[str, int]]:
    """Of bytes and special tokens, and the numbers of these."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = [*special, eos, pad, *named.values()]
    made = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=eos, pad_token=pad,
        additional_special_tokens=special, model_specific_special_tokens=named,
    )  # fmt: skip
    return made, {name: made.convert_tokens_to_ids(name) for name in special}


def add_start(folder: Path, start: str) -> None:
    """Make a tokenizer put a start token before every text, as those of Llama and Gemma do."""
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    (number,) = [each["id"] for each in values["added_tokens"] if each["content"] == start]
    special, text = (
        {"SpecialToken": {"id": start, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    )
    values["post_processor"] = {
        "type": "TemplateProcessing", "single": [special, text], "pair": [special, text, text],
        "special_tokens": {start: {"id": start, "ids": [number], "tokens": [start]}},
    }  # fmt: skip
    file.write_text(json.dumps(values), encoding="utf-8")
    file = folder / "tokenizer_config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "bos_token": start}), encoding="utf-8")


def _save(model: Any, folder: Path, eos: int) -> None:
    model.generation_config.eos_token_id = eos
    model.save_pretrained(folder)


def _text(ids: dict[str, int], eos: str, pad: str, size: int) -> dict[str, Any]:
    return {
        "vocab_size": size, "hidden_size": 2 * _HEAD, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 2048, "eos_token_id": ids[eos], "bos_token_id": ids[pad],
        "pad_token_id": ids[pad],
    }  # fmt: skip


def _vision(**further: Any) -> dict[str, Any]:
    return {"hidden_size": 32, "intermediate_size": 64, **further}


def qwen3_vl(folder: Path) -> None:
    """Qwen3-VL, with a template that thinks."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    named = {
        "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
        "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>",
    }  # fmt: skip
    eos, pad = "<|im_end|>", "<|endoftext|>"
    tokenizer, ids = _tokenizer(["<|im_start|>"], eos, pad, **named)
    patches = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    pictures = Qwen2VLImageProcessor(
        min_pixels=16 * 16 * 4, max_pixels=64 * 64 * 4, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        **patches,
    )  # fmt: skip
    template = _turns("<|im_start|>", "<|vision_start|><|image_pad|><|vision_end|>", eos) + THINKS
    Qwen3VLProcessor(
        pictures, tokenizer, Qwen3VLVideoProcessor(cap_pixels_per_frame=True, **patches),
        chat_template=template,
    ).save_pretrained(folder)  # fmt: skip
    rope = {
        "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 8, 8],
        "mrope_interleaved": True,
    }  # fmt: skip
    config = Qwen3VLConfig(
        text_config={
            **_text(ids, eos, pad, len(tokenizer)), "head_dim": _HEAD, "rope_parameters": rope,
        },
        vision_config=_vision(
            depth=2, num_heads=2, patch_size=16, spatial_merge_size=2, temporal_patch_size=2,
            out_hidden_size=2 * _HEAD, num_position_embeddings=16, deepstack_visual_indexes=[0],
        ),
        tie_word_embeddings=False,
        **{f"{name}_id": ids[token] for name, token in named.items()},
    )  # fmt: skip
    _save(Qwen3VLForConditionalGeneration(config), folder, ids[eos])


def internvl(folder: Path) -> None:
    """InternVL 3.5 as transformers has it, with Qwen's text tower."""
    from transformers import (
        GotOcr2ImageProcessor,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
    )

    named = {
        "start_image_token": "<img>", "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>",
    }  # fmt: skip
    eos, pad = "<|im_end|>", "<|endoftext|>"
    tokenizer, ids = _tokenizer(["<|im_start|>"], eos, pad, **named)
    square = {"height": 32, "width": 32}
    pictures = GotOcr2ImageProcessor(
        size=square, crop_to_patches=True, min_patches=1, max_patches=4
    )
    ask = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    InternVLProcessor(
        pictures, tokenizer, InternVLVideoProcessor(size=square), image_seq_length=4,
        chat_template=_turns("<|im_start|>", "<IMG_CONTEXT>\n", eos) + ask,
    ).save_pretrained(folder)  # fmt: skip
    config = InternVLConfig(
        text_config={"model_type": "qwen2", **_text(ids, eos, pad, len(tokenizer))},
        vision_config=_vision(
            num_hidden_layers=2, num_attention_heads=2, image_size=[32, 32], patch_size=[8, 8]
        ),
        image_token_id=ids["<IMG_CONTEXT>"], image_seq_length=4, downsample_ratio=0.5,
    )  # fmt: skip
    _save(InternVLForConditionalGeneration(config), folder, ids[eos])


def gemma4(folder: Path) -> None:
    """Gemma 4, without its audio tower."""
    from transformers import (
        Gemma4AudioFeatureExtractor,
        Gemma4Config,
        Gemma4ForConditionalGeneration,
        Gemma4ImageProcessor,
        Gemma4Processor,
        Gemma4VideoProcessor,
    )

    named = {
        "image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>",
        "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>",
    }  # fmt: skip
    eos, pad = "<turn|>", "<pad>"
    special = ["<bos>", "<|turn>", "<|channel>", "<channel|>"]
    tokenizer, ids = _tokenizer(special, eos, pad, **named)
    ask = "{% if add_generation_prompt %}<|turn>model\n{% endif %}"
    Gemma4Processor(
        Gemma4AudioFeatureExtractor(),
        Gemma4ImageProcessor(max_soft_tokens=70, patch_size=8, pooling_kernel_size=2),
        tokenizer, Gemma4VideoProcessor(), image_seq_length=70,
        chat_template="<bos>" + _turns("<|turn>", "<|image|>", eos) + ask,
    ).save_pretrained(folder)  # fmt: skip
    size = len(tokenizer) + 1
    config = Gemma4Config(
        text_config={
            **_text(ids, eos, pad, size), "vocab_size_per_layer_input": size, "head_dim": _HEAD,
            "global_head_dim": _HEAD, "hidden_size_per_layer_input": 16, "sliding_window": 512,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        vision_config=_vision(
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
            patch_size=8, pooling_kernel_size=2, position_embedding_size=256,
            default_output_length=70,
        ),
        audio_config=None, image_token_id=ids["<|image|>"], boi_token_id=ids["<|image>"],
        eoi_token_id=ids["<image|>"], video_token_id=size - 1,
    )  # fmt: skip
    _save(Gemma4ForConditionalGeneration(config), folder, ids[eos])


def idefics3(folder: Path) -> None:
    """Idefics3, as SmolVLM is published; its images become 4 x 4 tiles at least, unless limited."""
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
    )

    eos, pad = "<end_of_utterance>", "<|im_start|>"
    places = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    named = {"image_token": "<image>"}
    special = ["<fake_token_around_image>", "<global-img>", *places]
    tokenizer, ids = _tokenizer(special, eos, pad, **named)
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 32}
    )
    ask = "{% if add_generation_prompt %}Assistant:{% endif %}"
    Idefics3Processor(
        pictures, tokenizer, image_seq_len=4, chat_template=_turns("", "<image>", eos) + ask
    ).save_pretrained(folder)
    config = Idefics3Config(
        text_config={"model_type": "llama", **_text(ids, eos, pad, len(tokenizer))},
        vision_config=_vision(
            num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
        ),
        scale_factor=2, pad_token_id=ids[pad], image_token_id=ids["<image>"],
    )  # fmt: skip
    _save(Idefics3ForConditionalGeneration(config), folder, ids[eos])


def qwen3(folder: Path) -> None:
    """Qwen3, a language model that knows no images; its own file asks for a penalty."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    eos, pad = "<|im_end|>", "<|endoftext|>"
    tokenizer, ids = _tokenizer(["<|im_start|>"], eos, pad)
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}"
    ) + THINKS
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(head_dim=_HEAD, **_text(ids, eos, pad, len(tokenizer)))
    model = Qwen3ForCausalLM(config)
    model.generation_config.repetition_penalty = 1.5
    _save(model, folder, ids[eos])


TEXTS = ("A dog.", "Two cats on a wall.", "Three.", "Four of them", "Nothing at all!")
KINDS = {"qwen3_vl": qwen3_vl, "internvl": internvl, "gemma4": gemma4, "idefics3": idefics3}


def made(folder: Path) -> Path:
    """A folder with one of each."""
    import torch

    for name, make in {**KINDS, "qwen3": qwen3}.items():
        (folder / name).mkdir()
        torch.manual_seed(0)
        make(folder / name)
    return folder


def images() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (*s, 3), np.uint8) for s in ((40, 60), (60, 40), (40, 60))]


def captioner(folder: Path, backend: str, **settings: Any) -> Any:
    from glit.models.backends.captioners import CAPTIONERS
    from glit.models.weights import resolve
    from glit.stages.caption import CaptionConfig

    usual = {"max_tokens": 6, "device": "cpu", "max_model_len": 512, "max_image_side": 64}
    config = CaptionConfig(backend=backend, **(usual | settings))
    return CAPTIONERS[backend].make(config, resolve(str(folder)), PROMPT)


def by_vllm(folder: Path) -> dict[str, list[Any]]:
    """What vLLM says of three images with each, as the tests want it in JSON."""
    said = {}
    for name in KINDS:
        engine = captioner(folder / name, "vllm")
        answers = [engine.submit(image, seed=0, temperature=0.0) for image in images()]
        said[name] = [
            [answer.text, [token.logprob for token in answer.tokens]]
            for answer in (each.result() for each in answers)
        ]
        del engine, answers
        gc.collect()  # the next one starts a group of processes of its own
    engine = captioner(
        folder / "qwen3_vl", "vllm", structured=True, max_tokens=40, kinds=("long", "short")
    )
    asked = [engine, engine, engine.asking(PROMPT, ("a", "b")), engine.asking(PROMPT, ())]
    answers = [each.submit(images()[0], seed=0, temperature=0.0) for each in asked]
    said["structured"] = [each.result().text for each in answers]
    del engine, asked, answers
    gc.collect()
    said["qwen3"] = texts_by_vllm(folder / "qwen3")
    return said


def texts_by_vllm(folder: Path) -> list[str]:
    from glit.models.backends.captioners import LANGUAGE_MODELS
    from glit.models.weights import resolve
    from glit.stages.condense import CondenseConfig

    config = CondenseConfig(backend="vllm", max_tokens=12, device="cpu", max_model_len=512)
    engine = LANGUAGE_MODELS["vllm"].make(config, resolve(str(folder)), "")
    asked = [engine.asking(text).submit(None, seed=0, temperature=0.0) for text in TEXTS]
    return [each.result().text for each in asked]


def texts_by_transformers(folder: Path, **keys: Any) -> list[str]:
    """``generate`` of transformers itself, which follows the keys of the model's folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    answers = []
    for text in TEXTS:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True,
            enable_thinking=False, return_tensors="pt", return_dict=True,
        )  # fmt: skip
        made = model.generate(**asked, max_new_tokens=12, do_sample=False, **keys)
        ids = made[0, asked["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(ids, skip_special_tokens=True))
    return answers
