"""The executor of a build that names none; see docs/decisions/default-executor.md."""

from __future__ import annotations

import importlib.util
import os

from glit.errors import GlitError
from glit.executors import ExecutorName
from glit.inputs.source import Source, has_at_most
from glit.models.device import accelerators

FEW_IMAGES = 100
"""Up to so many images, a machine without a GPU is done before Ray's workers have started."""


def choose_executor(
    source: Source | None, *, address: str | None, limit: int | None = None, is_unfinished: bool
) -> ExecutorName:
    """``local`` for few images on one machine without a GPU, else ``ray``.

    The datasets are identical either way. An unfinished build goes on with Ray if that is
    installed, because an image that ends a process ends only one of Ray's.

    Args:
        source: the images of the dataset; None if they cannot be found.
        address: of a Ray cluster; RAY_ADDRESS counts too.
        limit: the most images that will be used.
        is_unfinished: whether an earlier run was stopped or has crashed.
    """
    if address or os.environ.get("RAY_ADDRESS"):
        return "ray"
    if is_unfinished and importlib.util.find_spec("ray") is not None:
        return "ray"
    if not (limit is not None and limit <= FEW_IMAGES) and not _are_few(source):
        return "ray"
    return "ray" if "cuda" in accelerators() else "local"


def _are_few(source: Source | None) -> bool:
    """Whether the images are few; if they cannot be listed, the build itself says why."""
    try:
        return source is None or has_at_most(source, FEW_IMAGES)
    except (GlitError, OSError):
        return True
