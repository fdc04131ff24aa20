"""Recognise folders with an image-to-text model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from glit.errors import WeightsError
from glit.models.backends.base import refuse_other_kind
from glit.models.files import model_type
from glit.models.weights import Resolved

_USUAL = {
    "gemma3", "gemma4", "idefics3", "internvl", "llava", "llava_next", "llava_onevision",
    "minicpmv4_6", "mllama", "paligemma", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_vl",
    "smolvlm",
}  # fmt: skip
"""Known without asking transformers, whose import takes seconds."""
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tekken.json",
              "additional_chat_templates/default.jinja")  # fmt: skip
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


def refuse_no_chat_template(
    model: Resolved | None, *, unless: Callable[[str, str], bool] | None = None
) -> None:
    """Refuse a model without a chat template, of which nobody knows how it is asked.

    Args:
        model: what the name resolved to.
        unless: whether one is there all the same, by the kind of model and its folder.

    Raises:
        WeightsError: names what to add.
    """
    if model is None or model.path.is_file() or _has_template(model.path):
        return
    kind = model_type(model.path)
    if not kind or (unless is not None and unless(kind, str(model.path))):
        return
    raise WeightsError(
        f"model {model.name!r}: it has no chat template, so glit does not know how it is asked; "
        "add the chat_template.jinja of its instruct version to its folder, or take that version"
    )


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in _TEMPLATES):
        return True
    for name in ("processor_config.json", "tokenizer_config.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads((folder / name).read_text(encoding="utf-8")).get("chat_template"):
                return True
    return False


def _of_transformers() -> tuple[set[str], set[str]]:
    """The kinds it turns images into text with, and all it knows."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    writing = {config.model_type for config in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING}
    return writing, set(CONFIG_MAPPING.keys())
