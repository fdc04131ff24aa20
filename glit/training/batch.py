"""One batch in the encoders' layout: pixels, rows of texts, and their indices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from glit.dataset.local_pairs import LocalPair
from glit.models.clip.text_rows import TextRows, lay_out
from glit.training.features import Labels
from glit.training.objective import InputSpec
from glit.training.sample import PlannedSample

Tokenize = Callable[[list[str]], list[list[int]]]
"""Token ids of texts with start and end token, cut to the text window; one call a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Labels):
    """N samples of which G whole images, M local pairs, F false sentences and E further texts are
    encoded.

    The images hold the G whole ones first (G is N, or 0 where the objective needs none), then the
    M crops; the texts hold the G captions, then the M sentences, the F false sentences and the E
    further texts. There are no crops, or no sentences, where the objective needs none.
    """

    pixels_V3SS: UInt8[Tensor, "v 3 side side"]
    """V = G + M images, not yet normalised."""
    texts: TextRows
    """G + M + F + E texts."""
    num_global: int
    """G."""
    num_valid: int
    """Samples that are no fillers."""
    slot_M: Int[Tensor, " m"]
    """Slot (sample * K + k) of every crop and sentence."""
    slot_F: Int[Tensor, " f"]
    """Slot ((sample * K + k) * J + j) of every false sentence."""
    slot_E: Int[Tensor, " e"]
    """Slot (sample * S + s) of every further text."""
    boxes_NK4: Float[Tensor, "n k 4"]
    """Regions in pixels of the model's square; zeros in empty slots."""
    spans_NK2: Int[Tensor, "n k 2"]
    """Token span of the sentence in its caption; zeros where it leaves the window."""
    mask_patches_NKP: Bool[Tensor, "n k p"] | None = None
    """The patches that the masks of the regions touch, none of a region without one; None unless
    ``train.patches`` is ``mask``."""
    prepared: Mapping[str, Tensor] = field(default_factory=dict)
    """[G, ...] what the objective prepared of every sample, by its names."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with every tensor changed."""
        changed = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changed[each.name] = change(value)
            elif isinstance(value, Mapping):
                changed[each.name] = {name: change(tensor) for name, tensor in value.items()}
            elif isinstance(value, TextRows):
                changed[each.name] = value.map(change)
        return replace(self, **changed)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelPlace:
    """The memory of a batch that holds one sample's pixels."""

    whole: UInt8[Tensor, "3 side side"] | None
    """None where whole images are not needed."""
    crops: UInt8[Tensor, "m 3 side side"]
    """A crop for each of its pairs; none where they are not needed."""
    patches: Bool[Tensor, "k p"] | None = None
    """A row of patches for each of its pairs; None where masks are not asked for."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """For what the objective prepares."""


def collate(
    samples: Sequence[PlannedSample],
    tokenize: Tokenize,
    needs: InputSpec,
    *,
    side: int,
    context: int,
    pad_id: int,
    mask_patches: int = 0,
    inputs: Mapping[str, Tensor] | None = None,
    pin_memory: bool = False,
) -> tuple[Batch, list[PixelPlace]]:
    """Make a batch without pixels, and the place of each sample's pixels in it.

    Takes 10 ms for 256 samples, beside tokenising.

    Args:
        samples: planned for the same needs.
        tokenize: see :data:`Tokenize`.
        needs: of the objective.
        side: of the model's input square, pixels.
        context: text window, tokens.
        pad_id: token id of empty slots.
        mask_patches: patches of an image, where those under masks are asked for.
        inputs: of the objective; see :meth:`Objective.inputs`.
        pin_memory: use page-locked memory, for copies to a GPU that nobody waits for.
    """
    pairs = [pair for sample in samples for pair in sample.pairs]
    further = [text for sample in samples for text in sample.texts]
    valid_local = _filled([len(sample.pairs) for sample in samples], needs.num_local)
    num_negatives = _in_slots([len(pair.negatives) for pair in pairs], valid_local, dtype=np.int64)
    valid_negative = _filled(num_negatives, needs.num_negatives)
    valid_further = _filled([len(sample.texts) for sample in samples], needs.num_texts)
    valid = np.array([not sample.filler for sample in samples])
    num_global = len(samples) if needs.whole else 0
    num_crops = len(pairs) if needs.crops else 0
    pixels = torch.empty(
        (num_global + num_crops, 3, side, side), dtype=torch.uint8, pin_memory=pin_memory
    )
    by_mask = None
    if mask_patches:
        size = (*valid_local.shape, mask_patches)
        by_mask = torch.zeros(size, dtype=torch.bool, pin_memory=pin_memory)
    prepared = {
        name: torch.zeros((num_global, *one.shape), dtype=one.dtype, pin_memory=pin_memory)
        for name, one in (inputs or {}).items()
    }
    boxes = [box for sample in samples for box in sample.boxes_K4]
    spans = [pair.token_span for pair in pairs]
    tables = {
        "slot_M": np.flatnonzero(valid_local),
        "slot_F": np.flatnonzero(valid_negative),
        "slot_E": np.flatnonzero(valid_further),
        "boxes_NK4": _in_slots(boxes, valid_local, 4),
        "spans_NK2": _in_slots(spans, valid_local, 2, dtype=np.int64),
        "valid_N": valid,
        "valid_local_NK": valid_local,
        "valid_negative_NKJ": valid_negative,
        "valid_further_NS": valid_further,
        "similarity_NK": _in_slots([pair.similarity for pair in pairs], valid_local),
        "weight_NK": _in_slots([pair.weight for pair in pairs], valid_local),
        "local_key_NK2": _in_slots([words_key(p.sentence) for p in pairs], valid_local, 2),
        "caption_key_N2": _in_slots(
            [words_key(sample.caption) for sample in samples], np.ones_like(valid), 2
        ),
        "further_key_NS2": _in_slots([words_key(text) for text in further], valid_further, 2),
    }
    texts = tokenize(_texts(samples, pairs, needs))
    batch = Batch(
        pixels_V3SS=pixels,
        texts=lay_out(texts, context=context, pad_id=pad_id),
        num_global=num_global,
        num_valid=int(valid.sum()),
        mask_patches_NKP=by_mask,
        prepared=prepared,
        **{name: torch.from_numpy(table) for name, table in tables.items()},
    )
    if pin_memory:
        written = (pixels, by_mask, *batch.prepared.values())
        batch = batch.map(
            lambda each: each if any(each is one for one in written) else each.pin_memory()
        )
    return batch, _places(samples, batch, pixels, by_mask, crops=needs.crops)


def _places(
    samples: Sequence[PlannedSample],
    batch: Batch,
    pixels: UInt8[Tensor, "v 3 side side"],
    by_mask: Bool[Tensor, "n k p"] | None,
    *,
    crops: bool,
) -> list[PixelPlace]:
    """Return where each sample's pixels go in the memory of its batch."""
    numbers = [len(sample.pairs) if crops else 0 for sample in samples]
    ends = np.cumsum([0, *numbers]) + batch.num_global
    return [
        PixelPlace(
            whole=pixels[index] if batch.num_global else None,
            crops=pixels[start:end],
            patches=None if by_mask is None else by_mask[index, : len(samples[index].pairs)],
            inputs={name: tensor[index] for name, tensor in batch.prepared.items()},
        )
        for index, (start, end) in enumerate(pairwise(ends.tolist()))
    ]


def _texts(
    samples: Sequence[PlannedSample], pairs: Sequence[LocalPair], needs: InputSpec
) -> list[str]:
    """All texts of a batch, in its order."""
    texts = [s.caption if needs.captions else "" for s in samples] if needs.whole else []
    texts += [pair.sentence for pair in pairs if needs.sentences]
    if needs.num_negatives:
        texts += [each.text for pair in pairs for each in pair.negatives]
    return texts + [text for sample in samples for text in sample.texts]


def words_key(text: str) -> tuple[int, int]:
    """A 48-bit hash of a text's words, as two numbers that float32 holds exactly. Case and
    punctuation do not count, so "A dog." and "a dog" have the same."""
    words = " ".join(re.findall(r"\w+", text.casefold())) or text
    digest = hashlib.blake2b(words.encode(), digest_size=6).digest()
    return int.from_bytes(digest[:3], "big"), int.from_bytes(digest[3:], "big")


def _filled(numbers: Sequence[int] | np.ndarray, width: int) -> np.ndarray:
    """Which slots [..., width] are filled when the first ones are, so many as ``numbers`` [...]
    says; bool."""
    return np.arange(width) < np.asarray(numbers, dtype=np.int64)[..., None]


def _in_slots(
    values: Sequence[Any], filled: np.ndarray, *width: int, dtype: Any = np.float32
) -> np.ndarray:
    """A table of the slots' shape and of values of a width; zeros in empty slots."""
    table = np.zeros((*filled.shape, *width), dtype=dtype)
    table[filled] = np.reshape(np.asarray(values, dtype=dtype), (-1, *width))
    return table


def into_slots(
    rows_MD: Float[Tensor, "m d"], slot_M: Int[Tensor, " m"], valid: Bool[Tensor, "*slots"]
) -> Float[Tensor, "*slots d"]:
    """Put rows into the slots that are filled; zeros elsewhere.

    Args:
        rows_MD: a row for every filled slot in order.
        slot_M: the numbers of these slots.
        valid: of the slots' shape.
    """
    slots = rows_MD.new_zeros(valid.numel(), rows_MD.shape[-1])
    return slots.index_copy(0, slot_M, rows_MD).view(*valid.shape, rows_MD.shape[-1])
