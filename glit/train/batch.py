"""One batch as the encoders take it: pixels, packed texts, and which belongs where."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from glit.clip.text_rows import TextRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B samples with K local slots each, of which M in all are filled.

    The images hold the G whole ones first (G is B, or 0 where the objective needs none), then the
    M crops; the texts hold the G captions, then the M sentences, in the same order.
    """

    pixels_V3SS: UInt8[Tensor, "v 3 side side"]
    """V = G + M images, not yet normalised."""

    texts: TextRows
    """G + M texts."""

    num_global: int
    """G."""

    slot_M: Int[Tensor, " m"]
    """Slot (sample * K + k) of every crop and sentence."""

    boxes_BK4: Float[Tensor, "b k 4"]
    """Regions in pixels of the model's square; zeros in empty slots."""

    spans_BK2: Int[Tensor, "b k 2"]
    """Token span of the sentence in its caption; zeros where it leaves the window."""

    valid_B: Bool[Tensor, " b"]
    """False for filler samples."""

    valid_local_BK: Bool[Tensor, "b k"]
    """Which slots hold a pair."""

    similarity_BK: Float[Tensor, "b k"]
    """The matcher's cosine of the pair."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = value.to(device, non_blocking=True)
            elif isinstance(value, TextRows):
                moved[field.name] = value.to(device)
        return replace(self, **moved)
