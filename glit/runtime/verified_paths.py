"""Check fast paths that use other libraries' internals before they are used.

Internals may change in any release. So each fast path has a plain path beside it, made of public
names, and :func:`agrees` runs both on a tiny random input, once per process and kind of model.
Where the fast one raises or its numbers differ, the plain one is used, with one warning
(docs/decisions/fast-paths.md).
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from glit.runtime.gpu_errors import ruins_process

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""Largest difference of two numbers, as a share of the largest number of the plain path."""

_verdicts: dict[Hashable, bool] = {}
"""By name of the fast path and kind of model; one process long."""


class FastPathWarning(RuntimeWarning):
    """A fast path failed or gave different numbers with an installed package; it is not used."""


def agrees(
    name: str,
    *,
    package: str,
    kind: Hashable,
    fast: Callable[[], Sequence[Tensor]],
    plain: Callable[[], Sequence[Tensor]],
) -> bool:
    """Return whether a fast path gives the plain path's numbers; warns once if not.

    Args:
        name: of the fast path, for the warning.
        package: distribution whose internals it uses.
        kind: what the verdict depends on beside the name: model class, device, dtype.
        fast: runs the fast path on the probe's input.
        plain: runs the plain path on the same input.

    Returns:
        The verdict of this process's first call with this name and kind. Where a model has NaN
        among its weights nothing can be compared: that is a no, and is not remembered.
    """
    key = (name, kind)
    if key in _verdicts:
        return _verdicts[key]
    comparable = True
    try:
        with torch.no_grad():
            wanted = plain()
            comparable = all(bool(each.isfinite().all()) for each in wanted)
            fault = _difference(fast(), wanted) if comparable else "cannot be checked (NaN)"
    except Exception as error:
        if ruins_process(error):
            raise
        fault = f"fails ({type(error).__name__}: {' '.join(str(error).split())})"
    if fault:
        warnings.warn(
            f"glit's fast path for {name} {fault} with {package} {_version(package)}; "
            "the plain path is used: the same results, but slower",
            FastPathWarning,
            stacklevel=2,
        )
    if comparable:
        _verdicts[key] = not fault
    return not fault


def probe_input(*shape: int, like: Tensor, seed: int = 0) -> Tensor:
    """Normally distributed numbers from a seed; the global random state does not change."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(like.device, like.dtype)


def _difference(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> str:
    """Return the fault of the numbers found, or an empty string."""
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"gives {a.dtype} {list(a.shape)} instead of {b.dtype} {list(b.shape)}"
        largest = float(b.abs().max())
        apart = float((a - b).abs().max())
        allowed = _TOLERANCE.get(b.dtype, 1e-4)
        if not apart <= allowed * largest:  # NaN is not
            return f"gives other numbers (by up to {apart:.2g}, where the largest is {largest:.2g})"
    return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
