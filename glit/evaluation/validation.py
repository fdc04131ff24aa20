"""Measure a model during training as ``glit eval`` measures its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from glit.evaluation.class_folder import ClassFolder
from glit.evaluation.collection import Collection, DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import WAYS, Measured, Metrics
from glit.evaluation.own_encoders import embedder_of_module
from glit.evaluation.tasks.classify import classify
from glit.evaluation.tasks.retrieval import retrieval
from glit.models.clip.encoder import ClipEncoder
from glit.runtime.cores import num_threads
from glit.training.config import TrainConfig
from glit.training.log import VALIDATION
from glit.training.setup import Ingredients, Measure

Task = Callable[[CollectionEmbedder, Collection, EvaluateConfig], Measured]


def open_validation(config: TrainConfig, ingredients: Ingredients) -> Measure:
    """Retrieval on ``train.validation``, classification of ``train.validation_classes``, or both.

    By the cosine of both embeddings, in float32.

    Args:
        config: names dataset and folder.
        ingredients: the model in training.

    Raises:
        UserError: one cannot be opened.
    """
    settings = EvaluateConfig(
        context=config.context,
        image_root=config.image_root,
        num_workers=config.num_workers,
        recall_at=(1, 5, 10),
    )
    opened: list[tuple[Task, Collection]] = []
    if config.validation:
        opened.append((retrieval, DatasetCollection(config.validation, settings)))
    if config.validation_classes:
        opened.append((classify, ClassFolder(Path(config.validation_classes))))

    def measure() -> Metrics:
        model = ingredients.model
        model.eval()
        try:
            embedder = _embedder(config, ingredients, settings)
            found: Metrics = {}
            for task, collection in opened:
                found |= task(embedder, collection, settings).metrics
        finally:
            model.train()
        recalls = [found[f"{way}_recall@1"] for way in WAYS] if config.validation else []
        score = sum(recalls) / len(recalls) if recalls else found["acc1"]
        return {f"validation_{name}": value for name, value in found.items()} | {VALIDATION: score}

    return measure


def _embedder(
    config: TrainConfig, ingredients: Ingredients, settings: EvaluateConfig
) -> CollectionEmbedder:
    encoder: ClipEncoder = ingredients.model.encoder
    plain = CollectionEmbedder(
        name="the model in training",
        checkpoint="",
        folder=ingredients.start,
        encoder=encoder,
        tokenizer=ingredients.tokenizer,
        preprocessing=ingredients.preprocessing,
        context=config.context,
        batch_size=settings.batch_size,
        num_workers=num_threads(config.num_workers),
        device=encoder.clip.logit_scale.device,
    )
    if not ingredients.objective.own_encoders:
        return plain
    return embedder_of_module(plain, ingredients.objective, ingredients.model.module, settings)
