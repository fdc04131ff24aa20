"""The executor of a build that names none; see docs/decisions/default-executor.md."""

from __future__ import annotations

import importlib.util
import os

from glit.errors import GlitError
from glit.inputs.source import Source, has_at_most
from glit.models.device import accelerators
from glit.models.weights import is_mini
from glit.pipeline.executors import ExecutorName
from glit.stages import flow
from glit.stages.plan import Recipe

FEW_WITHOUT_MODELS, FEW_WITH_MINI_MODELS, FEW_WITH_MODELS = 3_000, 300, 30
"""Numbers of images up to which one process is about as fast as Ray, which takes time to start."""


def few_images(recipe: Recipe) -> int:
    """The most images of a recipe for which Ray is not worth its start."""
    named = flow(recipe.tables).models(recipe)
    models = {name for role, (name, _) in named.items() if role != "tokenizer"}
    if not models:
        return FEW_WITHOUT_MODELS
    return FEW_WITH_MINI_MODELS if all(map(is_mini, models)) else FEW_WITH_MODELS


def choose_executor(
    source: Source | None, *, few: int, address: str | None, limit: int | None, is_unfinished: bool
) -> ExecutorName:
    """``local`` for few images on one machine without a GPU, else ``ray``.

    The datasets are identical either way. An unfinished build goes on with Ray if that is
    installed, because an image that ends a process ends only one of Ray's.

    Args:
        source: the images of the dataset; None if they cannot be found.
        few: as :func:`few_images` says.
        address: of a Ray cluster; RAY_ADDRESS counts too.
        limit: the most images that will be used.
        is_unfinished: whether an earlier run was stopped or has crashed.
    """
    if address or os.environ.get("RAY_ADDRESS"):
        return "ray"
    if is_unfinished and importlib.util.find_spec("ray") is not None:
        return "ray"
    if not (limit is not None and limit <= few) and not _are_few(source, few):
        return "ray"
    return "ray" if "cuda" in accelerators() else "local"


def _are_few(source: Source | None, few: int) -> bool:
    """True if the images are few, or cannot be listed; then the build itself says why."""
    try:
        return source is None or has_at_most(source, few)
    except (GlitError, OSError):
        return True
