"""One batch as the encoders take it: pixels, rows of texts, and which belongs where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from glit.clip.text_rows import TextRows, lay_out
from glit.train.objective import Needs
from glit.train.sample import Decoded

Tokenize = Callable[[list[str]], list[list[int]]]
"""Token ids of texts with start and end token, cut to the text window; one call a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B samples with K local slots and S further texts each, of which M and E in all are filled.

    The images hold the G whole ones first (G is B, or 0 where the objective needs none), then the
    M crops; the texts hold the G captions, then the M sentences, then the E further texts.
    """

    pixels_V3SS: UInt8[Tensor, "v 3 side side"]
    """V = G + M images, not yet normalised."""
    texts: TextRows
    """G + M + E texts."""
    num_global: int
    """G."""
    slot_M: Int[Tensor, " m"]
    """Slot (sample * K + k) of every crop and sentence."""
    slot_E: Int[Tensor, " e"]
    """Slot (sample * S + s) of every further text."""
    boxes_BK4: Float[Tensor, "b k 4"]
    """Regions in pixels of the model's square; zeros in empty slots."""
    spans_BK2: Int[Tensor, "b k 2"]
    """Token span of the sentence in its caption; zeros where it leaves the window."""
    valid_B: Bool[Tensor, " b"]
    """False for filler samples."""
    valid_local_BK: Bool[Tensor, "b k"]
    """Which local slots hold a pair."""
    valid_further_BS: Bool[Tensor, "b s"]
    """Which slots hold a further text."""
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


def collate(
    samples: Sequence[Decoded],
    tokenize: Tokenize,
    needs: Needs,
    *,
    side: int,
    pad_id: int,
    pin_memory: bool = False,
) -> Batch:
    """Put samples into one batch: pixels in one block, texts tokenised in one call.

    Args:
        samples: decoded for the same needs.
        tokenize: see :data:`Tokenize`.
        needs: of the objective.
        side: of the model's input square, pixels.
        pad_id: token id of empty slots.
        pin_memory: put pixels in page-locked memory for fast copies to a GPU.
    """
    num_samples, num_slots, num_texts = len(samples), needs.num_local, needs.num_texts
    images = [s.global_image for s in samples if s.global_image is not None]
    texts = [s.caption for s in samples] if needs.whole else []
    num_global = len(images)
    boxes = torch.zeros(num_samples, num_slots, 4)
    spans = torch.zeros(num_samples, num_slots, 2, dtype=torch.long)
    valid_local = torch.zeros(num_samples, num_slots, dtype=torch.bool)
    valid_further = torch.zeros(num_samples, num_texts, dtype=torch.bool)
    similarity = torch.zeros(num_samples, num_slots)
    slots: list[int] = []
    for index, sample in enumerate(samples):
        images += sample.local_images
        for k, pair in enumerate(sample.pairs):
            texts.append(pair.sentence)
            slots.append(index * num_slots + k)
            boxes[index, k] = torch.from_numpy(sample.boxes_K4[k])
            spans[index, k] = torch.tensor(pair.token_span)
            valid_local[index, k] = True
            similarity[index, k] = pair.similarity
    further: list[int] = []
    for index, sample in enumerate(samples):
        texts += sample.texts
        further += range(index * num_texts, index * num_texts + len(sample.texts))
        valid_further[index, : len(sample.texts)] = True
    pixels = torch.empty((len(images), 3, side, side), dtype=torch.uint8, pin_memory=pin_memory)
    for index, image in enumerate(images):
        pixels[index] = image
    return Batch(
        pixels_V3SS=pixels,
        texts=lay_out(tokenize(texts) if texts else [], pad_id=pad_id),
        num_global=num_global,
        slot_M=torch.tensor(slots, dtype=torch.long),
        slot_E=torch.tensor(further, dtype=torch.long),
        boxes_BK4=boxes,
        spans_BK2=spans,
        valid_B=torch.tensor([not s.filler for s in samples]),
        valid_local_BK=valid_local,
        valid_further_BS=valid_further,
        similarity_BK=similarity,
    )
