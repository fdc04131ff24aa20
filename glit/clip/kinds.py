"""Check a model's kind: CLIP, or SigLIP if embeddings are enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glit.clip.encoder import ClipEncoder
from glit.clip.folder import load_clip, load_model
from glit.clip.image_processor import Preprocessing
from glit.clip.siglip import MODEL_TYPE, SiglipEncoder, SiglipTokenizer
from glit.models.files import model_type
from glit.models.tokenizer import TextTokenizer


def is_siglip(folder: Path) -> bool:
    """Whether a folder holds a SiglipModel, by its config.json."""
    return model_type(folder) == MODEL_TYPE


def open_model(folder: Path) -> Any:
    """A CLIPModel or a SiglipModel, in float32.

    Raises:
        WeightsError: the folder holds another kind of model, or none that can be loaded.
    """
    if is_siglip(folder):
        from transformers import SiglipModel

        return load_model(SiglipModel, folder)
    return load_clip(folder)


def open_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a model.

    Raises:
        WeightsError: there is none that can be used.
        MissingExtraError: it is made by a package that is not installed.
    """
    return (SiglipTokenizer if is_siglip(folder) else TextTokenizer)(folder)


def make_encoder(model: Any, preprocessing: Preprocessing, tokenizer: TextTokenizer) -> ClipEncoder:
    """The encoder of a model of either kind.

    Raises:
        WeightsError: the tokenizer has more tokens than the model has embeddings.
    """
    siglip, text = isinstance(tokenizer, SiglipTokenizer), model.config.text_config
    rows = len(model.text_model.get_input_embeddings().weight)
    tokenizer.check_fits(rows, model.name_or_path, end=None if siglip else text.eos_token_id)
    mean, std = preprocessing.mean, preprocessing.std
    if isinstance(tokenizer, SiglipTokenizer):
        return SiglipEncoder(model, mean=mean, std=std, pad_id=tokenizer.pad_id)
    return ClipEncoder(model, mean=mean, std=std)
