"""The input of an objective: embeddings of the whole contrastive batch, and which are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What is known of N samples with K local slots, J false sentences a slot and S further texts
    each, before anything is encoded."""

    valid_N: Bool[Tensor, " n"]
    """False for samples that only fill up the last batch of an epoch."""
    valid_local_NK: Bool[Tensor, "n k"]
    """False where a sample has no such local pair."""
    valid_negative_NKJ: Bool[Tensor, "n k j"]
    """False where a pair has no such false sentence."""
    valid_further_NS: Bool[Tensor, "n s"]
    """False where a sample has no such further text."""
    similarity_NK: Float[Tensor, "n k"]
    """The matcher's cosine of the pair, from the dataset."""
    weight_NK: Float[Tensor, "n k"]
    """Weight of the pair in local losses: 1, or its probability; zero in empty slots."""
    local_key_NK2: Float[Tensor, "n k 2"]
    """Hash of each sentence (:func:`glit.training.batch.words_key`), the same for sentences that
    differ in case and punctuation alone; zeros in empty slots."""
    caption_key_N2: Float[Tensor, "n 2"]
    """The same for captions."""
    further_key_NS2: Float[Tensor, "n s 2"]
    """The same for further texts; zeros in empty slots."""

    def labels(self) -> dict[str, Tensor]:
        """Every label, by name."""
        return {each.name: getattr(self, each.name) for each in fields(Labels)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features(Labels):
    """Embeddings of the samples, L2-normalised, beside their labels.

    Under several processes these are the gathered features of all of them, in rank order, so an
    objective need not know how many processes there are. Slots that are not valid hold zeros.
    """

    image_ND: Float[Tensor, "n d"]
    """Global image embeddings (v_g)."""
    text_ND: Float[Tensor, "n d"]
    """Caption embeddings (t_g)."""
    local_image_NKD: Float[Tensor, "n k d"]
    """Embeddings of the cropped regions (v_l)."""
    local_text_NKD: Float[Tensor, "n k d"]
    """Embeddings of the sentences (t_l)."""
    pooled_patch_NKD: Float[Tensor, "n k d"]
    """Patch tokens of the global image inside the region, pooled and projected (P_l)."""
    pooled_token_NKD: Float[Tensor, "n k d"]
    """Tokens of the caption that make up the sentence, pooled and projected (S_l)."""
    negative_text_NKJD: Float[Tensor, "n k j d"]
    """Embeddings of false sentences made of the pairs' sentences."""
    further_text_NSD: Float[Tensor, "n s d"]
    """Embeddings of the texts that the objective picked."""
    made: Mapping[str, Float[Tensor, "n ..."]] = field(default_factory=dict)
    """Tensors that the objective's module computed, a row a sample."""

    valid_patch_NK: Bool[Tensor, "n k"]
    """False where the region lies outside what the model sees of the image."""
    valid_token_NK: Bool[Tensor, "n k"]
    """False where the sentence leaves the text window."""
    valid_made: Mapping[str, Bool[Tensor, "n ..."]] = field(default_factory=dict)
    """Which entries of ``made`` are valid, under the same names; only where the module says so."""

    numbers: Mapping[str, Tensor] = field(default_factory=dict)
    """Learned values of the objective's module that belong to no sample, such as a temperature; the
    same in every process, so not gathered."""

    def embeddings(self) -> dict[str, Tensor]:
        """Every tensor that carries gradients and has a row a sample, by name."""
        own = {name: getattr(self, name) for name in _EMBEDDINGS}
        return own | {f"made.{name}": value for name, value in self.made.items()}

    def others(self) -> dict[str, Tensor]:
        """Every other tensor that has a row a sample, by name."""
        own = {name: getattr(self, name) for name in _OTHERS}
        return own | {f"valid_made.{name}": value for name, value in self.valid_made.items()}

    def with_rows(self, rows: Mapping[str, Tensor]) -> Features:
        """A copy with some tensors replaced."""
        own: dict[str, Any] = {name: value for name, value in rows.items() if "." not in name}
        for group in ("made", "valid_made"):
            changed = {
                name.removeprefix(f"{group}."): value
                for name, value in rows.items()
                if name.startswith(f"{group}.")
            }
            if changed:
                own[group] = {**getattr(self, group), **changed}
        return replace(self, **own)

    def equal_captions(self) -> Bool[Tensor, "n n"]:
        """Return which samples have the same caption, each with itself."""
        return equal_keys(self.caption_key_N2)


def equal_keys(key_N2: Float[Tensor, "n 2"]) -> Bool[Tensor, "n n"]:
    """Return which keys are equal, each to itself."""
    return (key_N2[:, None] == key_N2).all(dim=-1)


_ROWS = [each.name for each in fields(Features) if "_N" in each.name]
_EMBEDDINGS = [name for name in _ROWS if name.endswith("D")]  # as wide as an embedding
_OTHERS = [name for name in _ROWS if name not in _EMBEDDINGS]


def concatenate(parts: list[Features]) -> Features:
    """The samples of several parts one after the other; numbers are those of the first."""
    rows = [part.embeddings() | part.others() for part in parts]
    return parts[0].with_rows({name: torch.cat([row[name] for row in rows]) for name in rows[0]})
