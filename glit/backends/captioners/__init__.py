"""Captioners: vLLM in process, an OpenAI-compatible endpoint, transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glit.backends.protocols import Captioner
from glit.backends.weights import Resolved


def _vllm(config: Any, model: Resolved | None, prompt: str) -> Captioner:
    from glit.backends.captioners.vllm_engine import VllmCaptioner

    assert model is not None
    return VllmCaptioner(config, model, prompt)


def _endpoint(config: Any, model: Resolved | None, prompt: str) -> Captioner:
    from glit.backends.captioners.endpoint import EndpointCaptioner

    return EndpointCaptioner(config, prompt)


def _transformers(config: Any, model: Resolved | None, prompt: str) -> Captioner:
    from glit.backends.captioners.transformers_generate import TransformersCaptioner

    assert model is not None
    return TransformersCaptioner(config, model, prompt)


CAPTIONERS: dict[str, Callable[[Any, Resolved | None, str], Captioner]] = {
    "vllm": _vllm,
    "endpoint": _endpoint,
    "transformers": _transformers,
}
"""Backend name -> maker; each imports its engine only when it is made."""
