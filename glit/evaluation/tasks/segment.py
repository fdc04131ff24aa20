"""``segment``: a class for every pixel from the cosines of patches and class names, by mIoU.

The whole image is squeezed into the model's square. Each patch has a cosine with each class's
vector (as in ``classify``); cosines are interpolated between the patches' centres up to the image's
size, and a pixel is of the class with the highest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glit.errors import InputError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.label_maps import IGNORED, LabelMaps, open_label_maps
from glit.evaluation.metrics import Metrics
from glit.evaluation.tasks.classify import class_vectors

_COSINES_AT_ONCE = 1 << 24


def open_segments(
    dataset: str, config: EvaluateConfig, *, kind: str, images: Path | None, split: str | None
) -> LabelMaps:
    """Open a folder with label maps and their images.

    Raises:
        InputError: ``images`` is given: these layouts have their images beside the label maps.
    """
    if images is not None:
        raise InputError(f"--images: the folder of --format {kind} holds its images; leave it out")
    return open_label_maps(kind, Path(dataset), split=split, limit=config.limit)


def segment(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Metrics:
    """``miou``, the mean over classes of intersection over union, and ``pixel_accuracy``.

    Pixels without a class are not counted, and a class that neither is there nor was found counts
    in no mean.

    Raises:
        InputError: the collection has no labels of pixels, or one cannot be read.
    """
    if not isinstance(collection, LabelMaps):
        raise InputError(f"{collection.name}: segment measures --format voc or ade20k")
    whole = replace(embedder.squeezed(), unmixed=embedder.unmixed or config.unmixed)
    class_KD = class_vectors(whole, collection.classes, config)
    numbers = range(len(collection.maps))
    confusion_KK = np.zeros((len(class_KD), len(class_KD)), dtype=np.int64)
    patches = whole.patches(collection, numbers)
    for number, patch_PD in zip(numbers, (p for some in patches for p in some), strict=True):
        truth_HW = collection.labels(number)
        grid = round(len(patch_PD) ** 0.5)
        cosine_Kgg = (patch_PD @ class_KD.T).T.unflatten(1, (grid, grid))
        found_HW = classes_of_pixels(cosine_Kgg, *truth_HW.shape)
        confusion_KK += confusion(truth_HW, found_HW, len(class_KD))
    return means(confusion_KK) | {"images": float(len(numbers)), "classes": float(len(class_KD))}


def classes_of_pixels(
    cosine_Kgg: Float[Tensor, "k g g"], height: int, width: int
) -> Int[np.ndarray, "h w"]:
    """The class with the highest interpolated cosine, some rows of pixels at a time.

    Two patches side by side and a width of four: the middle pixels lie a quarter of the way from
    their own patch's centre to the other's.

    >>> classes_of_pixels(torch.tensor([[[1.0]], [[2.0]]]), 1, 2).tolist()
    [[1, 1]]
    """
    num_classes, grid, _ = cosine_Kgg.shape
    row_Hg, column_Wg = (
        F.interpolate(torch.eye(grid)[None], size=size, mode="linear")[0].T
        for size in (height, width)
    )
    across_KgW = cosine_Kgg @ column_Wg.T
    step = max(1, _COSINES_AT_ONCE // (num_classes * width))
    found = [
        (row_Hg[start : start + step] @ across_KgW).argmax(dim=0)
        for start in range(0, height, step)
    ]
    return torch.cat(found).numpy()


def confusion(
    truth_HW: Int[np.ndarray, "h w"], found_HW: Int[np.ndarray, "h w"], num_classes: int
) -> Int[np.ndarray, "k k"]:
    """Numbers of pixels by true class and found class."""
    counted_HW = truth_HW != IGNORED
    pairs = truth_HW[counted_HW] * num_classes + found_HW[counted_HW]
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def means(confusion_KK: Int[np.ndarray, "k k"]) -> Metrics:
    """Mean IoU and the share of right pixels.

    >>> means(np.array([[3, 1], [0, 0]]))["miou"]
    0.375
    """
    right_K = np.diagonal(confusion_KK)
    union_K = confusion_KK.sum(axis=0) + confusion_KK.sum(axis=1) - right_K
    seen_K = union_K > 0
    if not seen_K.any():
        raise InputError("no pixel has a class, so there is nothing to measure")
    return {
        "miou": float((right_K[seen_K] / union_K[seen_K]).mean()),
        "pixel_accuracy": float(right_K.sum() / confusion_KK.sum()),
    }
