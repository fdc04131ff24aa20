"""``refer``: the box that an expression means, among all annotated boxes of its image (RefCOCO)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glit.errors import InputError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import Metrics
from glit.evaluation.questions import Questions
from glit.evaluation.readers.boxes import expressions
from glit.evaluation.tasks.choose import embed_questions


def open_expressions(
    dataset: str, config: EvaluateConfig, *, kind: str, images: Path | None, split: str | None
) -> Questions:
    """Open RefCOCO's folder."""
    found = expressions(Path(dataset), images=images, split=split, limit=config.limit)
    return Questions(f"{kind} {split or 'val'}", found)


def refer(embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Share of the expressions whose most similar box has an IoU of 0.5 or more with theirs.

    Of equal cosines the first box counts. ``chance`` is the share that boxes taken at random get.

    Raises:
        InputError: the collection holds no expressions.
    """
    if not isinstance(collection, Questions):
        raise InputError(f"{collection.name}: refer measures --format refcoco")
    embedded = embed_questions(embedder, collection, config)
    hits = [
        int(embedded.score(boxes, texts)[:, 0].argmax()) in question.right
        for question, boxes, texts in embedded.questions
    ]
    chance = [len(question.right) / len(question.parts) for question, _, _ in embedded.questions]
    return {
        "accuracy": float(np.mean(hits)),
        "chance": float(np.mean(chance)),
        "expressions": float(len(hits)),
    }
