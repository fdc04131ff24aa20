"""The inputs of a training objective."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """The inputs that an objective needs of every sample; nothing else is decoded or encoded."""

    whole: bool = True
    """Whole images and whole captions."""
    captions: bool = True
    """Without them an empty text stands in every caption's place."""
    num_local: int = 0
    """Local pairs, best first."""
    crops: bool = True
    """Crops of the pairs' regions."""
    sentences: bool = True
    """Sentences of the pairs, encoded by themselves."""
    distinct_regions: bool = False
    """Only the best sentence of every region."""
    pooled_patches: bool = False
    """Patch tokens of every region, pooled; needs ``whole`` and local pairs."""
    pooled_tokens: bool = False
    """Caption tokens of every sentence, pooled; needs ``pooled_patches``."""
    tokens: bool = False
    """All patch and caption tokens, for a module of the objective; needs ``whole``."""
    unmixed: bool = False
    """Patch tokens that attend to themselves alone in the last layer."""
    num_negatives: int = 0
    """False sentences of every local pair, encoded by themselves; drawn from the dataset's column
    ``negatives``."""
    num_texts: int = 0
    """Texts beside the caption and the sentences, as the objective picks them."""
