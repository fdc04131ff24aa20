"""A model in training, measured as ``glit eval`` measures the checkpoint it is about to become."""

from __future__ import annotations

from glit.clip.encoder import ClipEncoder
from glit.cores import num_threads
from glit.evaluate.collection import DatasetCollection
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.metrics import WAYS
from glit.evaluate.own_encoders import embedder_of_module
from glit.evaluate.tasks.retrieval import retrieval
from glit.train.config import TrainConfig
from glit.train.setup import Ingredients
from glit.train.validation import Measure, Measured


def open_validation(config: TrainConfig, ingredients: Ingredients) -> Measure:
    """Retrieval on ``train.validation``, by the cosine of both embeddings, in float32.

    Args:
        config: names the dataset.
        ingredients: the model in training.

    Raises:
        UserError: the dataset cannot be opened.
    """
    settings = EvaluateConfig(
        context=config.context,
        image_root=config.image_root,
        num_workers=config.num_workers,
        recall_at=(1, 5, 10),
    )
    collection = DatasetCollection(config.validation, settings)

    def measure() -> Measured:
        model = ingredients.model
        model.eval()
        try:
            found = retrieval(_embedder(config, ingredients, settings), collection, settings)
        finally:
            model.train()
        return Measured(
            metrics={f"validation_{name}": value for name, value in found.items()},
            score=sum(found[f"{way}_recall@1"] for way in WAYS) / len(WAYS),
        )

    return measure


def _embedder(config: TrainConfig, ingredients: Ingredients, settings: EvaluateConfig) -> Embedder:
    encoder: ClipEncoder = ingredients.model.encoder
    plain = Embedder(
        name="the model in training",
        checkpoint="",
        folder=ingredients.start,
        encoder=encoder,
        tokenizer=ingredients.tokenizer,
        fit=config.image_fit,
        context=config.context,
        batch_size=settings.batch_size,
        num_workers=num_threads(config.num_workers),
        device=encoder.clip.logit_scale.device,
    )
    if ingredients.objective.needs.towers:
        return plain
    return embedder_of_module(plain, ingredients.model.module, settings)
