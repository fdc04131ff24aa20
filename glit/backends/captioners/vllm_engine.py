"""Captions by vLLM in this process: LLaVA-NeXT, or any other image-text model of vLLM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from PIL import Image

from glit.backends.base import Backend
from glit.backends.captioners.kinds import refuse_no_captioner
from glit.backends.captioners.token_probabilities import tokens_of_text
from glit.backends.protocols import CaptionerConfig, RawCaption
from glit.backends.weights import Resolved
from glit.errors import RunError
from glit.extras import require
from glit.images import Pixels

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives and dies with its worker
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # workers share the cores, none is pinned
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_CPU_CACHE_BYTES = 256 << 20


class VllmCaptioner:
    """vLLM's engine with the model's own chat template.

    Images are given as PIL images. The cache of processed images is off, since ingest drops
    duplicates.
    """

    def __init__(
        self, config: CaptionerConfig, model: Resolved, prompt: str, **engine: Any
    ) -> None:
        """Start the engine; ``engine`` are further arguments of its own."""
        config = VLLM.settled(config)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        require("vllm", needed_for="caption.backend = 'vllm'")
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._config = config
        self._prompt = prompt
        try:
            self._engine = LLM(**_engine_arguments(config, model) | engine)
        except (RuntimeError, ValueError, OSError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise RunError(f"vLLM cannot start with model {model.name!r}: {first}") from error

    def caption(
        self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
    ) -> list[RawCaption]:
        """See :class:`glit.backends.protocols.Captioner`."""
        conversations: Any = [[_message(image, self._prompt)] for image in images]
        parameters = [
            self._sampling(
                temperature=temperature,
                seed=seed if temperature > 0 else None,
                max_tokens=self._config.max_tokens,
                logprobs=0,  # of the chosen token alone
            )
            for seed in seeds
        ]
        outputs = self._engine.chat(conversations, parameters, use_tqdm=False)
        return [self._read(output.outputs[0]) for output in outputs]

    def _read(self, answer: Any) -> RawCaption:
        ids = list(answer.token_ids)
        logprobs = [step[token].logprob for token, step in zip(ids, answer.logprobs, strict=True)]
        tokens = tokens_of_text(self._engine.get_tokenizer(), ids, logprobs, answer.text)
        return RawCaption(text=answer.text, cut=answer.finish_reason == "length", tokens=tokens)


def _message(image: Pixels, prompt: str) -> dict[str, Any]:
    picture = {"type": "image_pil", "image_pil": Image.fromarray(image)}
    return {"role": "user", "content": [picture, {"type": "text", "text": prompt}]}


def _engine_arguments(config: CaptionerConfig, model: Resolved) -> dict[str, Any]:
    from transformers import AutoConfig

    loaded = AutoConfig.from_pretrained(str(model.path), local_files_only=True)
    text = loaded.get_text_config()
    longest = getattr(text, "max_position_embeddings", None) or config.max_model_len
    arguments: dict[str, Any] = {
        "model": str(model.path),
        "max_model_len": min(config.max_model_len, longest),
        "limit_mm_per_prompt": {"image": 1},
        "mm_processor_cache_gb": 0,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
        "dtype": config.precision,
    }
    if config.device == "cuda":
        arguments["gpu_memory_utilization"] = config.gpu_memory_utilization
    else:
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": _CPU_CACHE_BYTES}
    return arguments


def _check(config: CaptionerConfig, model: Resolved | None) -> None:
    refuse_no_captioner(model, backend="vllm")


VLLM = Backend(
    make=VllmCaptioner, tells_logprobs=True, keeps_process=False, extras=("vllm",), check=_check
)
