"""``choose``: the right one of several texts for an image or a box.

A question is answered right if the score of the right text is above that of every wrong one; a draw
is a wrong answer (scores closer than :data:`ROUNDING` are equal). Scores are cosines unless
``evaluate.scorer`` says otherwise. Sets of two images and two texts (Winoground, MMVP) are counted
as Winoground does (Thrush et al., CVPR 2022, Eq. 1 to 3):

text score   both images have the higher score with their own text
image score  both texts have the higher score with their own image (MMVP's accuracy of pairs)
group score  both

``blind_accuracy`` is the accuracy with the picture of another question. A model for which it is
above chance knows which texts are likely, without looking: false texts of some benchmarks can be
told by their words alone (Hsieh et al., SugarCrepe, NeurIPS 2023).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glit.errors import InputError, RecipeError
from glit.evaluation.boxes import embed_pictures
from glit.evaluation.collection import Collection, Text
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import ROUNDING, Metrics
from glit.evaluation.questions import Question, Questions
from glit.evaluation.readers.questions import read_questions
from glit.evaluation.scorers.cosine import Cosine, single
from glit.evaluation.scorers.protocol import Scorer, Vectors
from glit.inputs.published.files import no_parts
from glit.text.sentences import make_splitter


def open_questions(
    dataset: str, config: EvaluateConfig, *, kind: str, images: Path | None, split: str | None
) -> Questions:
    """Open a benchmark of questions, which has no parts."""
    no_parts(split)
    found = read_questions(kind, Path(dataset), images=images, limit=config.limit)
    return Questions(kind, found)


def choose(embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Shares of right answers, over all questions and for every kind, beside chance.

    Raises:
        InputError: the collection holds no questions.
    """
    if not isinstance(collection, Questions):
        raise InputError(f"{collection.name}: choose measures the benchmarks of --format")
    shares: dict[str, list[float]] = defaultdict(list)
    by_chance: dict[str, list[float]] = defaultdict(list)
    embedded = embed_questions(embedder, collection, config)
    count = len(embedded.pictures)
    for question, pictures, texts in embedded.questions:
        earned = scores(embedded.score(pictures, texts))
        by_name = {name: share for name, (share, _) in earned.items()}
        if len(pictures) == 1 < count:
            blind = scores(embedded.score([(pictures[0] + count // 2) % count], texts))
            by_name["blind_accuracy"] = blind["accuracy"][0]
        for name, share in by_name.items():
            shares[name].append(share)
            if question.kind:
                shares[f"{question.kind}_{name}"].append(share)
        for name, (_, chance) in earned.items():
            by_chance[name].append(chance)
            if question.kind:
                by_chance[f"{question.kind}_{name}"].append(chance)
    found = {name: float(np.mean(values)) for name, values in shares.items()}
    found |= {f"chance_{name}": float(np.mean(values)) for name, values in by_chance.items()}
    return found | {"questions": float(len(collection.questions))}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedQuestions:
    """Questions with the embeddings of their pictures and texts."""

    pictures: Vectors
    """Embeddings of the images and boxes that are asked about, each once."""
    texts: Vectors
    """Embeddings of the questions' texts, each once."""
    questions: Sequence[tuple[Question, list[int], list[int]]]
    """Every question, with the numbers of its rows in ``pictures`` and in ``texts``."""
    scorer: Scorer

    def score(self, pictures: list[int], texts: list[int]) -> Float[Tensor, "p t"]:
        """Scores of the pictures and texts with these indices."""
        return self.scorer.score(self.texts[texts], self.pictures[pictures]).T


def embed_questions(
    embedder: CollectionEmbedder, collection: Questions, config: EvaluateConfig
) -> EmbeddedQuestions:
    """Embed every picture and text once, as the scorer ``evaluate.scorer`` compares them.

    Raises:
        InputError: an image cannot be decoded.
        RecipeError: a scorer other than ``cosine``, and questions about boxes.
        RunError: an embedding is not finite.
    """
    scorer, pictures = config.make_scorer(), collection.pictures()
    texts = list(dict.fromkeys(text for each in collection.questions for text in each.texts))
    if isinstance(scorer, Cosine):
        embedded_pictures = single(embed_pictures(embedder, collection, pictures, config))
    elif any(box is not None for _, box in pictures):
        raise RecipeError(
            f"evaluate.scorer = {config.scorer!r}: compares whole images, and {collection.name} "
            "asks about boxes; wanted 'cosine'"
        )
    else:
        embedded_pictures = scorer.images(embedder, collection)
    picture_index = {picture: index for index, picture in enumerate(pictures)}
    text_index = {text: index for index, text in enumerate(texts)}
    questions = [
        (
            question,
            [picture_index[collection.picture(part)] for part in question.parts],
            [text_index[text] for text in question.texts],
        )
        for question in collection.questions
    ]
    split = make_splitter(config.splitter, "en")
    apart = [Text(text=text, sentences=tuple(split(text))) for text in texts]
    embedded_texts = scorer.texts(embedder, apart)
    return EmbeddedQuestions(
        pictures=embedded_pictures, texts=embedded_texts, questions=questions, scorer=scorer
    )


def scores(cosine_PT: Float[Tensor, "p t"]) -> dict[str, tuple[float, float]]:
    """Return by score whether it is earned, and its chance for cosines at random.

    >>> scores(torch.tensor([[0.3, 0.1, 0.2]]))
    {'accuracy': (1.0, 0.3333333333333333)}
    >>> {name: share for name, (share, _) in scores(torch.tensor([[0.3, 0.2], [0.5, 0.6]])).items()}
    {'text_score': 1.0, 'image_score': 0.0, 'group_score': 0.0}
    """
    num_images, num_texts = cosine_PT.shape
    if num_images == 1:
        right = bool((cosine_PT[0, 0] > cosine_PT[0, 1:] + ROUNDING).all())
        return {"accuracy": (float(right), 1 / num_texts)}
    own_P = cosine_PT.diagonal()
    others = ~torch.eye(num_images, dtype=torch.bool)
    text = bool((own_P[:, None] > cosine_PT + ROUNDING)[others].all())
    image = bool((own_P[None, :] > cosine_PT + ROUNDING)[others].all())
    # of the 24 orders of four cosines, 6 have the first and 4 have both
    return {
        "text_score": (float(text), 1 / 4),
        "image_score": (float(image), 1 / 4),
        "group_score": (float(text and image), 1 / 6),
    }
