"""Keep an exponential moving average of the trained weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from glit.errors import InputError, first_line

RAW = "trainer/weights.safetensors"
"""In a checkpoint whose model is an average: the weights that training goes on with."""


class Average:
    """After every step: average = decay * average + (1 - decay) * weights. It begins at the start.

    Costs as much memory as the trained weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names, self._learned = list(learned), list(learned.values())
        self._kept: list[Tensor | nn.Parameter] = [p.detach().clone() for p in self._learned]
        self._mix = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Update the average after a step."""
        self._mix(self._kept, [p.detach() for p in self._learned], 1)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[dict[str, Tensor]]:
        """Put the average's weights into the model for the block; yield the training weights."""
        self._swap()
        try:
            yield dict(zip(self._names, self._kept, strict=True))
        finally:
            self._swap()

    def _swap(self) -> None:
        for parameter, kept in zip(self._learned, self._kept, strict=True):
            parameter.data, kept.data = kept.data, parameter.data


def read_raw_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load the training weights into the model, in place.

    Raises:
        InputError: they are missing, damaged or another model's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = checkpoint / RAW
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    try:
        found = load_file(path)
        if set(found) != set(learned):
            raise ValueError("other weights than this run trains")
        with torch.no_grad():
            for name, parameter in learned.items():
                parameter.copy_(found[name])
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: the weights beside the average cannot be used "
            f"({first_line(error)}), so the run cannot be resumed from here; "
            "start a new run folder"
        ) from error
