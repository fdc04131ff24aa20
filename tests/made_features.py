"""Features of a made-up batch for tests of objectives, and what their losses are made of."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from glit.training.features import Features
from glit.training.objectives import OBJECTIVES

DISTINCT = list({kind: name for name, kind in OBJECTIVES.items()}.values())
"""A name of every objective: ``goal`` and ``fast-goal`` are one."""
SCALE = torch.tensor(3.0)
NUMBERS = {
    "scale": 2.0,
    "bias": -1.0,
    "part_scale": 3.0,
    "part_bias": -0.5,
    "whole_scale": 2.5,
    "whole_bias": -1.5,
    "dense_scale": 2.0,
    "dense_bias": -0.75,
    "region_scale": 2.0,
    "hard_scale": 3.0,
}
"""What modules of objectives have learned."""


def random_features(num: int, slots: int, *, seed: int = 0, dtype=torch.float32) -> Features:
    generator = torch.Generator().manual_seed(seed)

    def embedding(*shape: int) -> torch.Tensor:
        return F.normalize(torch.randn(*shape, 5, generator=generator, dtype=dtype), dim=-1)

    ones = torch.ones(num, slots, dtype=torch.bool)
    return Features(
        image_ND=embedding(num),
        text_ND=embedding(num),
        local_image_NKD=embedding(num, slots),
        local_text_NKD=embedding(num, slots),
        pooled_patch_NKD=embedding(num, slots),
        pooled_token_NKD=embedding(num, slots),
        negative_text_NKJD=embedding(num, slots, 3),
        further_text_NSD=embedding(num, 2),
        valid_N=torch.ones(num, dtype=torch.bool),
        valid_local_NK=ones,
        valid_patch_NK=ones.clone(),
        valid_token_NK=ones.clone(),
        valid_negative_NKJ=torch.arange(3).expand(num, slots, 3)
        < 3 - torch.arange(num)[:, None, None] % 2,
        valid_further_NS=torch.arange(2) < 2 - torch.arange(num)[:, None] % 2,
        similarity_NK=torch.rand(num, slots, generator=generator, dtype=dtype),
        weight_NK=torch.ones(num, slots, dtype=dtype),
        local_key_NK2=torch.arange(2.0 * num * slots).view(num, slots, 2),
        caption_key_N2=torch.arange(2.0 * num).view(num, 2),
        further_key_NS2=torch.arange(4.0 * num).view(num, 2, 2),
        made={
            "image_tokens": embedding(num, 3),
            "text_tokens": embedding(num, 4),
            "aggregated": embedding(num, 2),
            "pooled": embedding(num, 3),
            "query": embedding(num, 2),
            "key": embedding(num, 3),
            "value": embedding(num, 3),
            "parts": embedding(num, 2),
            "coarse": embedding(num),
            "long": embedding(num),
            "word_image": torch.rand(num, generator=generator, dtype=dtype),
            "word_text": torch.rand(num, generator=generator, dtype=dtype),
        },
        valid_made={
            "words": torch.arange(num) % 3 < 2,
            "image_tokens": torch.ones(num, 3, dtype=torch.bool),
            "text_tokens": torch.arange(4) < 4 - torch.arange(num)[:, None] % 2,
        },
        numbers={name: torch.tensor(value, dtype=dtype) for name, value in NUMBERS.items()}
        | {"out_weight": embedding(5), "out_bias": embedding()},
    )


def changed(features: Features, change: Callable[[torch.Tensor], torch.Tensor]) -> Features:
    """The features with every tensor that has a row a sample changed."""
    rows = features.embeddings() | features.others()
    return features.with_rows({name: change(value) for name, value in rows.items()})


def at(*degrees: float) -> torch.Tensor:
    """[N, 5]: embeddings at these angles in the plane of the first two coordinates."""
    turns = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return F.pad(torch.stack([turns.cos(), turns.sin()], dim=-1), (0, 3)).float()


def objective_of(name: str):
    return OBJECTIVES[name]()


def cross_entropy(logits: list[list[float]]) -> float:
    """Symmetric cross-entropy in plain Python."""

    def rows(matrix: list[list[float]]) -> float:
        total = 0.0
        for i, row in enumerate(matrix):
            total += math.log(sum(math.exp(v) for v in row)) - row[i]
        return total / len(matrix)

    return (rows(logits) + rows([list(column) for column in zip(*logits, strict=True)])) / 2


def logits(a: torch.Tensor, b: torch.Tensor) -> list[list[float]]:
    return (SCALE * a @ b.T).tolist()
