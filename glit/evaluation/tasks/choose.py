"""``choose``: the right one of several texts for an image or a box.

A question is answered right if the cosine of the right text is above that of every wrong one; a
draw is a wrong answer. Sets of two images and two texts (Winoground, MMVP) are counted as
Winoground does (Thrush et al., CVPR 2022, Eq. 1 to 3):

text score   both images have the higher cosine with their own text
image score  both texts have the higher cosine with their own image (MMVP's accuracy of pairs)
group score  both

``blind_accuracy`` is the accuracy with the picture of another question. A model for which it is
above chance knows which texts are likely, without looking: false texts of some benchmarks can be
told by their words alone (Hsieh et al., SugarCrepe, NeurIPS 2023).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glit.errors import InputError
from glit.evaluation.boxes import embed_pictures
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import Embedder
from glit.evaluation.metrics import Metrics
from glit.evaluation.questions import Question, Questions


def choose(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Shares of right answers, over all questions and for every kind, beside chance.

    Raises:
        InputError: the collection holds no questions.
    """
    if not isinstance(collection, Questions):
        raise InputError(f"{collection.name}: choose measures the benchmarks of --format")
    shares: dict[str, list[float]] = defaultdict(list)
    by_chance: dict[str, list[float]] = defaultdict(list)
    picture_VD, text_TD, asked = embed_questions(embedder, collection, config)
    for question, pictures, texts in asked:
        earned = scores(picture_VD[pictures] @ text_TD[texts].T)
        by_name = {name: share for name, (share, _) in earned.items()}
        if len(pictures) == 1 < len(picture_VD):
            other = (pictures[0] + len(picture_VD) // 2) % len(picture_VD)
            blind = scores(picture_VD[[other]] @ text_TD[texts].T)
            by_name["blind_accuracy"] = blind["accuracy"][0]
        for name, share in by_name.items():
            shares[name].append(share)
            if question.kind:
                shares[f"{question.kind}_{name}"].append(share)
        for name, (_, chance) in earned.items():
            by_chance[name].append(chance)
    found = {name: float(np.mean(values)) for name, values in shares.items()}
    found |= {f"chance_{name}": float(np.mean(values)) for name, values in by_chance.items()}
    return found | {"questions": float(len(collection.questions))}


def embed_questions(
    embedder: Embedder, collection: Questions, config: EvaluateConfig
) -> tuple[Float[Tensor, "v d"], Float[Tensor, "t d"], list[tuple[Question, list[int], list[int]]]]:
    """Different pictures and texts, and every question with the rows of its own."""
    pictures = collection.pictures()
    place = {picture: row for row, picture in enumerate(pictures)}
    picture_VD = embed_pictures(embedder, collection, pictures, config)
    texts = list(dict.fromkeys(text for each in collection.questions for text in each.texts))
    number = {text: row for row, text in enumerate(texts)}
    asked = [
        (
            question,
            [place[collection.picture(part)] for part in question.parts],
            [number[text] for text in question.texts],
        )
        for question in collection.questions
    ]
    return picture_VD, embedder.texts(texts), asked


def scores(cosine_PT: Float[Tensor, "p t"]) -> dict[str, tuple[float, float]]:
    """By score, whether it is earned, and its chance for cosines at random.

    >>> scores(torch.tensor([[0.3, 0.1, 0.2]]))
    {'accuracy': (1.0, 0.3333333333333333)}
    >>> {name: share for name, (share, _) in scores(torch.tensor([[0.3, 0.2], [0.5, 0.6]])).items()}
    {'text_score': 1.0, 'image_score': 0.0, 'group_score': 0.0}
    """
    num_images, num_texts = cosine_PT.shape
    if num_images == 1:
        right = bool((cosine_PT[0, 0] > cosine_PT[0, 1:]).all())
        return {"accuracy": (float(right), 1 / num_texts)}
    own_P = cosine_PT.diagonal()
    others = ~torch.eye(num_images, dtype=torch.bool)
    text = bool((own_P[:, None] > cosine_PT)[others].all())
    image = bool((own_P[None, :] > cosine_PT)[others].all())
    # of the 24 orders of four cosines, 6 have the first and 4 have both
    return {
        "text_score": (float(text), 1 / 4),
        "image_score": (float(image), 1 / 4),
        "group_score": (float(text and image), 1 / 6),
    }
