"""Captions of a LLaVA-NeXT of 7B with random weights: transformers, and vLLM where it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from glit.bench.harness import Row, note
from glit.bench.lism_flism.models import made_by_glit
from glit.images import Pixels
from glit.models.backends.captioners.transformers_generate import TransformersCaptioner
from glit.models.backends.protocols import RawCaption
from glit.recipes.resources import mini_model
from glit.stages.caption import CaptionConfig
from tools.measure.gpu.bench import Bench, row

NEW_TOKENS = 100
_NEVER = 1 << 30
"""An end token that no model writes."""
SEVEN_B: dict[str, Any] = {
    "text_config": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    },
    "vision_config": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768,
    },
    "vision_feature_layer": -2,
    "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
    "image_seq_length": 576,
    "dtype": "bfloat16",
}  # fmt: skip
"""The published shape of LLaVA-NeXT on Mistral 7B, but for its vocabulary: tokens are those of the
mini captioner, 2 % of the work of a token less."""


def measure(bench: Bench) -> Iterator[Row]:
    """Captions of 100 tokens a second; what leaves the model is no language."""
    full = bench.is_full and bench.device == "cuda"
    number = 32 if full else 2
    images = bench.pixels(bench.scenes(number))
    folder = llava(bench.scratch / "llava", SEVEN_B if number > 2 else {})
    config = CaptionConfig(
        backend="transformers", model=str(folder), device=bench.device,
        max_tokens=NEW_TOKENS if full else 4,
        precision="bfloat16" if bench.device == "cuda" else "float32", batch_size=number,
    )  # fmt: skip

    def random(kind: Any, path: Path, *, dtype: torch.dtype, device: Any) -> Any:
        from transformers import AutoConfig

        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                return kind.from_config(AutoConfig.from_pretrained(path))
        finally:
            torch.set_default_dtype(before)

    model = made_by_glit(folder)
    captioner = TransformersCaptioner(config, model, "Describe the image.", weights=random)
    captioner._model.generation_config.eos_token_id = _NEVER

    _together(captioner, images[:1])
    for size in sorted({1, number // 4, number} - {0}):
        bench.finish()
        started = time.perf_counter()
        answers = _together(captioner, images[:size])
        yield from _captions(
            f"transformers, batches of {size}", answers, time.perf_counter() - started
        )
    del captioner
    if not full:
        return
    if importlib.util.find_spec("vllm") is None:
        yield note("vLLM is not installed")
        return
    torch.cuda.empty_cache()
    yield from _by_vllm(config, folder, images)


def _together(captioner: TransformersCaptioner, images: Sequence[Pixels]) -> list[RawCaption]:
    return captioner.caption(images, seeds=[0] * len(images), temperature=0.0)


def _by_vllm(config: CaptionConfig, folder: Path, images: Sequence[Pixels]) -> Iterator[Row]:
    from dataclasses import replace

    from glit.models.backends.captioners.vllm_engine import VllmCaptioner

    config = replace(config, backend="vllm")
    engine = VllmCaptioner(config, made_by_glit(folder), "Describe the image.", load_format="dummy")
    engine._keys_of_sampling = {**engine._keys_of_sampling, "ignore_eos": True}
    for repeats in (1, 8):  # the first one warms up
        started = time.perf_counter()
        some = [image for image in images for _ in range(repeats)]
        waiting = [engine.submit(image, seed=0, temperature=0.0) for image in some]
        answers = [each.result() for each in waiting]
    yield from _captions("vLLM", answers, time.perf_counter() - started)


def _captions(how: str, answers: Sequence[RawCaption], seconds: float) -> Iterator[Row]:
    """Captions a second; random weights may not end one before its limit of tokens."""
    yield row(f"captions, {how}", len(answers) / seconds, "captions/s")
    if short := sum(not each.cut for each in answers):
        yield note(f"captions, {how}: {short} of {len(answers)} ended early, so the rate is wrong")


def llava(folder: Path, shape: dict[str, Any]) -> Path:
    """Write the configuration and the processor of a LLaVA-NeXT, without weights.

    Args:
        folder: takes the files.
        shape: changes to the mini captioner's configuration.
    """
    shutil.copytree(mini_model("captioner"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    for key, value in shape.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(config))
    if shape:
        side, pinpoints = shape["vision_config"]["image_size"], shape["image_grid_pinpoints"]
        path = folder / "processor_config.json"
        processor = json.loads(path.read_text())
        processor["patch_size"] = shape["vision_config"]["patch_size"]
        processor["image_processor"] |= {
            "crop_size": {"height": side, "width": side}, "size": {"shortest_edge": side},
            "image_grid_pinpoints": pinpoints,
        }  # fmt: skip
        path.write_text(json.dumps(processor))
    return folder
