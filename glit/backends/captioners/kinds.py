"""Recognise folders with an image-to-text model."""

from __future__ import annotations

from glit.backends.base import refuse_other_kind
from glit.backends.model_files import model_type
from glit.backends.weights import Resolved

_USUAL = {
    "gemma3", "gemma4", "idefics3", "internvl", "llava", "llava_next", "llava_onevision",
    "minicpmv4_6", "mllama", "paligemma", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_vl",
    "smolvlm",
}  # fmt: skip
"""Known without asking transformers, whose import takes seconds."""
_VLLM_TOO = {"phi4_multimodal"}


def refuse_no_captioner(model: Resolved | None, *, backend: str) -> None:
    """Refuse a model that cannot turn images into text.

    vLLM knows kinds that transformers does not, so of those only what transformers knows to be of
    another kind is refused.

    Raises:
        WeightsError: see :func:`refuse_other_kind`.
    """
    loads = f"caption.backend = {backend!r} loads models that turn images into text"
    found = "" if model is None or model.path.is_file() else model_type(model.path)
    types = _USUAL
    if found and found not in _USUAL:
        types, known = _of_transformers()
        if backend == "vllm" and (found not in known or found in _VLLM_TOO):
            return
        if found not in types:
            types = _USUAL  # the message names a dozen, not all
    refuse_other_kind(model, types, loads=loads)


def _of_transformers() -> tuple[set[str], set[str]]:
    """The kinds it turns images into text with, and all it knows."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    writing = {config.model_type for config in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING}
    return writing, set(CONFIG_MAPPING.keys())
