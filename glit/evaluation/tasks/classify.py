"""``classify``: zero-shot classification of a folder of classes (CLIP, section 3.1.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glit.errors import GlitError, InputError, UserError
from glit.evaluation.class_folder import ClassFolder
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import Measured, Metrics
from glit.evaluation.templates import templates
from glit.runtime.prefetch import batched
from glit.runtime.progress import null_progress

_CLASSES_AT_ONCE = 64
_IMAGES_AT_ONCE = 512


def open_classes(
    dataset: str, config: EvaluateConfig, *, kind: str, images: Path | None, split: str | None
) -> ClassFolder:
    """Open a folder of classes; annotations have none."""
    if kind != "glit" or images is not None or split is not None:
        raise UserError("--format, --images and --split: classify takes a folder of classes")
    return ClassFolder(Path(dataset), names=config.class_names, limit=config.limit)


def classify(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Measured:
    """``acc1``, ``acc5`` (of more than five classes) and the mean of the classes' own accuracies.

    An image belongs to the class whose vector has the highest cosine with it. Images that cannot be
    read are left out, counted, and named.

    Raises:
        InputError: no folder of classes, or no image of it can be read.
    """
    if not isinstance(collection, ClassFolder):
        raise InputError(f"{collection.name}: classify measures a folder of classes")
    class_KD = class_vectors(embedder, collection.classes, config)
    ranks: list[Tensor] = []
    classes: list[int] = []
    broken: list[str] = []
    embedder.progress.begin("images", total=len(collection.names), done=0)
    for numbers, image_ND in _readable(embedder, collection, broken):
        own = [collection.class_of[number] for number in numbers]
        ranks.append(rank_of_own(image_ND @ class_KD.T, torch.tensor(own)))
        classes += own
    if not classes:
        raise InputError(f"{collection.name}: none of {len(broken)} images can be read")
    metrics = accuracies(torch.cat(ranks), torch.tensor(classes), len(class_KD)) | {
        "images": float(len(classes)),
        "classes": float(len(class_KD)),
        "broken": float(len(broken)),
    }
    return Measured(metrics=metrics, broken=tuple(broken))


def class_vectors(
    embedder: CollectionEmbedder, classes: Sequence[tuple[str, ...]], config: EvaluateConfig
) -> Float[Tensor, "k d"]:
    """A vector for every class: the normalised mean of what its names give in all templates."""
    frames = templates(config.templates)
    found = []
    quiet = replace(embedder, progress=null_progress())  # counted here, not anew for every block
    embedder.progress.begin("classes", total=len(classes), done=0, drops=False)
    for some in batched(classes, _CLASSES_AT_ONCE):
        texts = [[frame.replace("{}", n) for n in names for frame in frames] for names in some]
        vectors = quiet.texts([text for each in texts for text in each])
        parts = vectors.split([len(each) for each in texts])
        found += [F.normalize(part.mean(dim=0), dim=0) for part in parts]
        embedder.progress.advance(len(some))
    return torch.stack(found)


def rank_of_own(score_NK: Float[Tensor, "n k"], class_N: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return how many classes come before an image's own; of equal scores the lower number comes
    first.

    >>> rank_of_own(torch.tensor([[0.2, 0.9, 0.2]]), torch.tensor([2])).tolist()
    [2]
    """
    own_N1 = score_NK.gather(1, class_N[:, None])
    earlier_NK = torch.arange(score_NK.shape[1]) < class_N[:, None]
    return ((score_NK > own_N1) | ((score_NK == own_N1) & earlier_NK)).sum(dim=1)


def accuracies(rank_N: Int[Tensor, " n"], class_N: Int[Tensor, " n"], num_classes: int) -> Metrics:
    """Shares of images whose class is first, or among five, and the mean over classes.

    Three images of class 0, two of them right, and one of class 1 that is wrong: acc1 is 2/4, the
    mean of the classes 1/3.
    """
    right_N = (rank_N == 0).double()
    number_K = torch.bincount(class_N, minlength=num_classes)
    right_K = torch.bincount(class_N, weights=right_N, minlength=num_classes)
    seen_K = number_K > 0
    found = {"acc1": float(right_N.mean())}
    if num_classes > 5:
        found["acc5"] = float((rank_N < 5).double().mean())
    found["mean_per_class_recall"] = float((right_K[seen_K] / number_K[seen_K]).mean())
    return found


def _readable(
    embedder: CollectionEmbedder, collection: ClassFolder, broken: list[str]
) -> Iterator[tuple[list[int], Float[Tensor, "n d"]]]:
    """Numbers and embeddings of images, a block at a time; names of the others go to ``broken``."""
    quiet = replace(embedder, progress=null_progress())
    for block in batched(range(len(collection.names)), _IMAGES_AT_ONCE):
        bad = 0
        try:
            yield block, quiet.images(collection, [(number, None) for number in block])
        except InputError:
            good = []
            for number, is_good in zip(
                block,
                embedder.ahead(lambda n: _is_good(embedder, collection, n), block),
                strict=True,
            ):
                if is_good:
                    good.append(number)
                else:
                    broken.append(collection.names[number])
                    bad += 1
            if good:
                yield good, quiet.images(collection, [(number, None) for number in good])
        embedder.progress.advance(len(block), bad)


def _is_good(embedder: CollectionEmbedder, collection: ClassFolder, number: int) -> bool:
    try:
        embedder.fitted(collection, (number, None))
    except (GlitError, OSError):
        return False
    return True
