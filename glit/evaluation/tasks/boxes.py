"""``boxes``: zero-shot classification of annotated boxes (COCO, LVIS)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from glit.errors import InputError
from glit.evaluation.boxes import embed_pictures
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, Picture
from glit.evaluation.metrics import Metrics
from glit.evaluation.questions import QuestionImages
from glit.evaluation.readers.boxes import ClassBoxes, class_boxes
from glit.evaluation.tasks.classify import accuracies, class_vectors, rank_of_own
from glit.inputs.published.files import no_parts
from glit.runtime.progress import null_progress

_AT_ONCE = 1024


class BoxFiles(QuestionImages):
    """Image files with boxes of known classes."""

    def __init__(self, name: str, boxes: ClassBoxes) -> None:
        paths = list(dict.fromkeys(path for path, _ in boxes.parts))
        super().__init__(name, paths)
        number = {path: i for i, path in enumerate(paths)}
        self.pictures: list[Picture] = [(number[path], box) for path, box in boxes.parts]
        self.class_of = boxes.class_of
        self.classes = boxes.classes
        for (index, _), own in zip(self.pictures, self.class_of, strict=True):
            self.captions[index] += self.classes[own][:1]


def open_boxes(
    dataset: str, config: EvaluateConfig, *, kind: str, images: Path | None, split: str | None
) -> BoxFiles:
    """Open COCO's or LVIS's annotations, which have no parts."""
    no_parts(split)
    return BoxFiles(kind, class_boxes(Path(dataset), images=images, limit=config.limit))


def boxes(embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """``acc1``, ``acc5`` and the mean of the classes' own accuracies, over all boxes.

    A class's vector is that of ``classify``; a box belongs to the class with the highest cosine.

    Raises:
        InputError: the collection has no boxes with classes.
    """
    if not isinstance(collection, BoxFiles):
        raise InputError(f"{collection.name}: boxes measures COCO's or LVIS's annotations")
    class_KD = class_vectors(embedder, collection.classes, config)
    ranks = []
    quiet = replace(embedder, progress=null_progress())  # counted here, not anew for every block
    embedder.progress.begin("boxes", total=len(collection.pictures), done=0, drops=False)
    for start in range(0, len(collection.pictures), _AT_ONCE):
        some = collection.pictures[start : start + _AT_ONCE]
        own = torch.tensor(collection.class_of[start : start + _AT_ONCE])
        box_ND = embed_pictures(quiet, collection, some, config)
        ranks.append(rank_of_own(box_ND @ class_KD.T, own))
        embedder.progress.advance(len(some))
    class_N = torch.tensor(collection.class_of)
    return accuracies(torch.cat(ranks), class_N, len(class_KD)) | {
        "boxes": float(len(class_N)),
        "classes": float(len(class_KD)),
    }
