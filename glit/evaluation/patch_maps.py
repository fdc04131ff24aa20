"""Maps of a sentence over an image: the cosine of every patch with it, for one model or several."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from glit.evaluation.collection import DatasetCollection, Text
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.report import short_names
from glit.evaluation.run import open_embedder
from glit.runtime.process_state import without_bars
from glit.runtime.progress import StageProgress


def patch_maps(
    models: Sequence[str],
    dataset: str,
    numbers: Sequence[int],
    config: EvaluateConfig,
    *,
    progress: StageProgress | None = None,
) -> list[list[dict[str, Any]]]:
    """Make a map of every sentence by each model; images are squeezed into its square.

    Args:
        models: built-in names, folders, runs, hub ids.
        dataset: its folder or address.
        numbers: rows of the dataset.
        config: settings.
        progress: shows texts and images.

    Returns:
        By sample and model: ``model``, ``grid`` (patches a side), and for every sentence ``low``
        and ``high`` (its lowest and highest cosine) and ``maps``, base64 of one byte a patch, row
        by row, 0 for its lowest and 255 for its highest cosine.

    Raises:
        UserError: a model cannot be loaded, or has no patches in the space of its texts.
        InputError: an image cannot be decoded.
        RunError: an embedding is not finite.
    """
    collection = DatasetCollection(dataset, replace(config, limit=0))
    sentences = [_sentences(collection, number) for number in numbers]
    found: list[list[dict[str, Any]]] = [[] for _ in numbers]
    for model, name in zip(models, short_names(models), strict=True):
        with without_bars():
            embedder = open_embedder(model, config, progress=progress).squeezed()
        text_TD = embedder.texts([text for some in sentences for text in some])
        of_sample = text_TD.split([len(some) for some in sentences])
        patches = (one for some in embedder.patches(collection, numbers) for one in some)
        for maps, text_SD, patch_PD in zip(found, of_sample, patches, strict=True):
            cosine_SP = text_SD @ patch_PD.T
            low_S1, high_S1 = cosine_SP.amin(1, keepdim=True), cosine_SP.amax(1, keepdim=True)
            share_SP = (cosine_SP - low_S1) / (high_S1 - low_S1).clamp_min(1e-9)
            bytes_SP = (share_SP * 255).round().to(torch.uint8)
            maps.append(
                {
                    "model": name,
                    "grid": round(len(patch_PD) ** 0.5),
                    "maps": [base64.b64encode(row.numpy().tobytes()).decode() for row in bytes_SP],
                    "low": [round(value, 4) for value in low_S1[:, 0].tolist()],
                    "high": [round(value, 4) for value in high_S1[:, 0].tolist()],
                }
            )
    return found


def _sentences(collection: DatasetCollection, number: int) -> list[str]:
    """The sentences of a row, as the page numbers them."""
    (caption,), (spans,) = collection.captions[number], collection.sentences(number)
    return Text(text=caption, sentences=tuple(spans)).pieces if spans else []
