"""Captions at LLaVA-NeXT's shape: through vLLM where it is installed, and by ``generate``."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glit.backends.captioners.transformers_generate import TransformersCaptioner
from glit.backends.protocols import CaptionerConfig
from glit.backends.weights import Resolved, resolve
from glit.bench.gpu.bench import Bench, row
from glit.bench.harness import Row, note
from glit.bench.lism_flism.models import made_by_glit
from glit.recipes.resources import default_prompt
from glit.runtime.gpu_errors import free_memory

_TIMES = 4
"""Rounds of images that vLLM gets, so that its batches are full."""


def measure(bench: Bench) -> Iterator[Row]:
    """Captions a second by both ways."""
    model = made_by_glit(shape_folder(bench))
    width, height = bench.scale.captioned_px
    shape, rng = (bench.scale.num_captions, height, width, 3), np.random.default_rng(0)
    images = list(rng.integers(0, 256, shape, dtype=np.uint8))
    prompt = default_prompt().read_text(encoding="utf-8")
    config = CaptionerConfig(
        device=bench.device, max_tokens=bench.scale.caption_tokens, max_model_len=4096
    )
    yield from _by_generate(bench, TransformersCaptioner(
        config, model, prompt, weights=random_weights
    ), model, images)  # fmt: skip
    if bench.device == "cuda" and importlib.util.find_spec("vllm"):
        free_memory()  # the engine asks for most of the GPU
        from glit.backends.captioners.vllm_engine import VllmCaptioner

        engine = VllmCaptioner(config, model, prompt, load_format="dummy")
        yield from _through_vllm(bench, engine, model, images * _TIMES)
    else:
        yield note("captions through vLLM: not installed, or no GPU; left out")


def shape_folder(bench: Bench) -> Path:
    """The configuration of the full model with the mini captioner's tokenizer; no weights."""
    from transformers import AutoProcessor, LlavaNextConfig

    mini, folder = resolve("mini-captioner").path, bench.scratch / "llava"
    folder.mkdir()
    for path in mini.iterdir():
        if path.suffix in (".json", ".jinja"):
            shutil.copy(path, folder / path.name)
    arguments = bench.scale.captioner
    own = json.loads((mini / "config.json").read_text(encoding="utf-8"))
    text = {**arguments["text_config"], "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = LlavaNextConfig(
        **{**arguments, "text_config": text},
        image_token_index=own["image_token_index"],
        architectures=own["architectures"],  # by which vLLM knows what the model is for
    )
    config.save_pretrained(folder)
    processor: Any = AutoProcessor.from_pretrained(mini, local_files_only=True)
    vision: Any = config.vision_config
    side = vision.image_size
    processor.image_processor.size = {"shortest_edge": side}
    processor.image_processor.crop_size = {"height": side, "width": side}
    processor.image_processor.image_grid_pinpoints = config.image_grid_pinpoints
    processor.patch_size = vision.patch_size
    processor.save_pretrained(folder)
    return folder


def _through_vllm(
    bench: Bench, captioner: Any, model: Resolved, images: list[np.ndarray]
) -> Iterator[Row]:
    few = images[: min(8, len(images))]
    captioner.caption(few, seeds=[0] * len(few), temperature=0.0)
    started = time.perf_counter()
    captioner.caption(images, seeds=[0] * len(images), temperature=0.0)
    rate = len(images) / (time.perf_counter() - started)
    operations, tokens = _operations(bench, model)
    what = f"captions through vLLM, {tokens} prompt tokens, {bench.scale.caption_tokens} new"
    limit = bench.limit(operations, "bfloat16")
    yield row(what, rate, "images/s", limit=limit, bottleneck="preparing images, then prefill")


def _by_generate(
    bench: Bench, captioner: TransformersCaptioner, model: Resolved, images: list[np.ndarray]
) -> Iterator[Row]:
    prepared = [captioner.prepare(image) for image in images[:8]]
    batch, number = captioner.joined(prepared), len(prepared)
    seconds = bench.seconds(lambda: captioner.generate(batch, seed=0, temperature=0.0), repeats=1)
    operations, tokens = _operations(bench, model)
    limit = bench.limit(operations, "bfloat16" if bench.device == "cuda" else "float32")
    what = f"captions by generate, batches of {number}, {tokens} prompt tokens"
    bottleneck = "one token at a time"
    yield row(what, number / seconds, "images/s", limit=limit, bottleneck=bottleneck)
    alone = bench.seconds(lambda: captioner.prepare(images[0]))
    yield row("preparing a caption's image, one core", 1 / alone, "images/s", bottleneck="core")


def random_weights(kind: Any, path: Path, *, dtype: Any, device: Any) -> Any:
    """A model of a folder's shape with random weights, made on the device."""
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(path), local_files_only=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return kind.from_config(config)
    finally:
        torch.set_default_dtype(before)


def _operations(bench: Bench, model: Resolved) -> tuple[float, int]:
    """Operations of one image's prefill and of its new tokens, and the tokens of its prompt."""
    from PIL import Image
    from transformers import AutoProcessor, LlavaNextConfig

    processor: Any = AutoProcessor.from_pretrained(str(model.path), local_files_only=True)
    width, height = bench.scale.captioned_px
    blank = Image.new("RGB", (width, height))
    inputs = processor(images=blank, text="<image>", return_tensors="pt")
    tokens, tiles = inputs["input_ids"].shape[1], inputs["pixel_values"].shape[1]
    config: Any = LlavaNextConfig(**bench.scale.captioner)
    text, vision = config.text_config, config.vision_config
    hidden, inner = text.hidden_size, text.intermediate_size
    share = text.num_key_value_heads / text.num_attention_heads
    a_token = text.num_hidden_layers * (4 * hidden**2 * (1 + share) + 6 * hidden * inner)
    read = tokens + bench.scale.caption_tokens
    attention = text.num_hidden_layers * 2 * hidden * read**2  # causal: half of 4
    patches = (vision.image_size // vision.patch_size) ** 2 + 1
    wide, deep = vision.hidden_size, vision.num_hidden_layers
    seen = tiles * deep * (24 * wide**2 * patches + 4 * wide * patches**2)
    return float(a_token * read + attention + seen), int(tokens)
