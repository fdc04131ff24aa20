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
    found = _by_generate(bench, config, model, prompt, images)
    yield from found
    if bench.device == "cuda" and importlib.util.find_spec("vllm"):
        free_memory()  # the engine asks for most of the GPU
        from glit.backends.captioners.vllm_engine import VllmCaptioner

        engine = VllmCaptioner(config, model, prompt, load_format="dummy")
        rate = _through_vllm(engine, images * _TIMES)
        what = f"captions through vLLM, {bench.scale.caption_tokens} new tokens"
        bottleneck = "preparing images, then prefill"
        yield row(what, rate, "images/s", limit=found[0]["limit"], bottleneck=bottleneck)
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


def _through_vllm(captioner: Any, images: list[np.ndarray]) -> float:
    """Images a second, after a few that warm up."""
    few = images[: min(8, len(images))]
    captioner.caption(few, seeds=[0] * len(few), temperature=0.0)
    started = time.perf_counter()
    captioner.caption(images, seeds=[0] * len(images), temperature=0.0)
    return len(images) / (time.perf_counter() - started)


def _by_generate(
    bench: Bench, config: CaptionerConfig, model: Resolved, prompt: str, images: list[np.ndarray]
) -> list[Row]:
    """Captions a second, and images prepared a second; the model is gone afterwards."""
    captioner = TransformersCaptioner(config, model, prompt, weights=random_weights)
    batch = captioner.joined([captioner.prepare(image) for image in images[:8]])
    number = min(8, len(images))
    found = bench.figure(
        f"captions by generate, batches of {number}, {bench.scale.caption_tokens} new tokens",
        lambda: captioner.generate(batch, seed=0, temperature=0.0), number=number, repeats=1,
        unit="images/s", precision="bfloat16" if bench.device == "cuda" else "float32",
        bottleneck="one token at a time",
    )  # fmt: skip
    alone = bench.seconds(lambda: captioner.prepare(images[0]))
    what = "preparing a caption's image, one core"
    return [found, row(what, 1 / alone, "images/s", bottleneck="core")]


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
