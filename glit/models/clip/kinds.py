"""Open a model of any kind that is matched, trained or measured: CLIP, MetaCLIP 2, SigLIP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.folder import load_model
from glit.models.clip.image_processor import Preprocessing, read_preprocessing
from glit.models.clip.model_types import KINDS, is_siglip
from glit.models.clip.runs import refuse_own_encoders
from glit.models.clip.siglip import NaflexEncoder, SiglipEncoder, SiglipTokenizer
from glit.models.clip.text_window import stretch_model
from glit.models.device import pick_device
from glit.models.files import model_type
from glit.models.int8 import use_int8
from glit.models.onednn import use_onednn
from glit.models.pretrained import as_weights_error
from glit.models.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model with all that it reads images and texts with."""

    encoder: ClipEncoder
    preprocessing: Preprocessing
    """Resizing and normalisation of its images."""
    tokenizer: TextTokenizer


def open_encoder(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    context: int = 0,
    device: str = "auto",
    int8: bool = False,
    name: str = "",
    own_encoders: bool = False,
) -> OpenedModel:
    """Open a model of one of the :data:`~glit.models.clip.model_types.KINDS` to embed with.

    On a CPU its linear layers go through oneDNN where they can, or have 8 bits.

    Args:
        folder: of the model's files.
        dtype: of its weights.
        context: text window in tokens, to which its own is brought; 0 is its own.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        int8: give its linear layers 8 bits (:mod:`glit.models.int8`); on a CPU.
        name: of the model, for messages; its folder if empty.
        own_encoders: take a checkpoint whose objective encodes by itself, too.

    Raises:
        WeightsError: the model, its preprocessing or its tokenizer cannot be used.
        UserError: this machine does not have the device, or would compute wrong numbers in 8 bits.
    """
    if not own_encoders:
        refuse_own_encoders(folder, name or str(folder))
    model = open_model(folder, dtype=dtype).eval()
    side = getattr(model.config.vision_config, "image_size", 0)
    opened = assemble(model, read_preprocessing(folder, side=side), folder, context=context)
    encoder = opened.encoder.to(pick_device(device))
    for part in encoder.linear_parts():
        (use_int8 if int8 else use_onednn)(part)
    return opened


def assemble(
    model: Any, preprocessing: Preprocessing, folder: Path, *, context: int = 0
) -> OpenedModel:
    """Give a loaded model its text window, its tokenizer and an encoder.

    Args:
        model: of :func:`open_model`.
        preprocessing: of its images.
        folder: of the tokenizer's files.
        context: as of :func:`open_encoder`.

    Raises:
        WeightsError: the tokenizer cannot be used, or has more tokens than the model.
    """
    if context:
        stretch_model(model, context)
    tokenizer = open_tokenizer(folder)
    encoder = make_encoder(model, preprocessing, tokenizer, folder=folder)
    return OpenedModel(encoder=encoder, preprocessing=preprocessing, tokenizer=tokenizer)


def open_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """Load a model of one of the :data:`~glit.models.clip.model_types.KINDS`.

    Raises:
        WeightsError: the folder holds another kind of model, a part of one, or none that can be
            loaded.
    """
    import transformers

    kind = KINDS.get(model_type(folder), "CLIPModel")
    return load_model(getattr(transformers, kind), folder, dtype=dtype)


def open_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a model.

    Raises:
        WeightsError: there is none that can be used.
        MissingExtraError: it is made by a package that is not installed.
    """
    return (SiglipTokenizer if is_siglip(folder) else TextTokenizer)(folder)


def make_encoder(
    model: Any,
    preprocessing: Preprocessing,
    tokenizer: TextTokenizer,
    *,
    folder: Path | None = None,
) -> ClipEncoder:
    """The encoder of a model of any kind.

    Args:
        model: of :func:`open_model`.
        preprocessing: of its images.
        tokenizer: of its texts.
        folder: of its files, by default the one it was loaded from.

    Raises:
        WeightsError: the tokenizer has more tokens than the model has embeddings.
    """
    siglip, text = isinstance(tokenizer, SiglipTokenizer), model.config.text_config
    rows = len(model.text_model.get_input_embeddings().weight)
    tokenizer.check_fits(rows, model.name_or_path, end=None if siglip else text.eos_token_id)
    mean, std = preprocessing.mean, preprocessing.std
    if not isinstance(tokenizer, SiglipTokenizer):
        return ClipEncoder(model, mean=mean, std=std)
    kind = NaflexEncoder if model.config.model_type == "siglip2" else SiglipEncoder
    pads_left = tokenizer.hf.padding_side == "left"
    encoder = kind(model, mean=mean, std=std, pad_id=tokenizer.pad_id, pads_left=pads_left)
    if isinstance(encoder, NaflexEncoder):
        encoder.most_patches = _most_patches(folder or Path(model.name_or_path))
    return encoder


def _most_patches(folder: Path) -> int:
    from transformers import AutoImageProcessor

    with as_weights_error(f"{folder}: its image processor cannot be loaded"):
        processor: Any = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        return int(processor.max_num_patches)
