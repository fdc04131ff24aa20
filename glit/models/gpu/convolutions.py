"""float32 stays float32 in convolutions on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def no_tf32_convolutions() -> Iterator[None]:
    """Convolutions in float32 on a GPU, where torch lets cuDNN round to TF32 by default.

    TF32 would change boxes and gradients (docs/experiments.md); CLIP and SAM cut images into
    patches by a convolution.

    Set by torch's setting for each operator. The older ``allow_tf32`` cannot be read once a caller
    has used the newer settings, and setting it to False leaves TF32 on where their common
    ``torch.backends.fp32_precision`` is "tf32". Within the block ``allow_tf32`` is False where it
    could be read before, for what still reads it (torch.compile does).
    """
    import torch

    cudnn: Any = torch.backends.cudnn
    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    try:
        allowed = cudnn.allow_tf32
    except RuntimeError:  # the caller's settings are of the newer kind
        allowed = None
    try:
        if allowed is not None:
            cudnn.allow_tf32 = False
        cudnn.conv.fp32_precision = cudnn.rnn.fp32_precision = "ieee"
        yield
    finally:
        if allowed is not None:
            cudnn.allow_tf32 = allowed
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = before
