"""Load and write a CLIPModel's folder."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from glit.errors import WeightsError, first_line
from glit.models.clip.image_processor import IMAGE_PROCESSOR, Preprocessing, processor_config
from glit.models.files import model_type
from glit.models.pretrained import as_weights_error, load_whole

if TYPE_CHECKING:
    from transformers import CLIPConfig, CLIPModel

M = TypeVar("M")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "spiece.model",
    "tokenizer.model",
)


def write_model(
    folder: Path, model: CLIPModel, *, start: Path, preprocessing: Preprocessing
) -> None:
    """Write a folder that ``CLIPModel`` and ``CLIPProcessor`` load, or SigLIP's.

    Args:
        folder: where to write; created if it does not exist.
        model: the weights and their config.
        start: the folder that training started from; its tokenizer files are copied.
        preprocessing: of the images in training, for preprocessor_config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with disk_errors():
        model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (start / name).is_file():
            shutil.copyfile(start / name, folder / name)
    text_config: Any = model.config.text_config
    context = text_config.max_position_embeddings
    tokenizer_config = folder / "tokenizer_config.json"
    if tokenizer_config.is_file():
        values = json.loads(tokenizer_config.read_text(encoding="utf-8"))
        write_json(tokenizer_config, {**values, "model_max_length": context})
    write_json(folder / IMAGE_PROCESSOR, processor_config(model, preprocessing))


def clip_config(folder: Path) -> CLIPConfig:
    """The configuration of a CLIPModel's folder.

    Raises:
        WeightsError: it is another kind of model, or damaged.
    """
    from transformers import CLIPConfig

    if (found := model_type(folder)) != "clip":
        raise WeightsError(f"{folder}: holds a {found!r} model; give a CLIP checkpoint")
    with as_weights_error(f"{folder}: its config.json is damaged"):
        return CLIPConfig.from_pretrained(folder)


def load_model(kind: type[M], folder: Path, *, dtype: torch.dtype = torch.float32) -> M:
    """A model of this class of transformers: its safetensors, or the pickle that
    glit.models.weights let pass.

    Raises:
        WeightsError: the folder holds another kind of model, a part of one, or none that can be
            loaded.
    """
    from transformers import AutoConfig

    wanted: Any = kind
    with as_weights_error(f"{folder}: no {kind.__name__} can be loaded from it"):
        config = AutoConfig.from_pretrained(folder)
        if config.model_type != wanted.config_class.model_type:
            raise WeightsError(
                f"{folder}: holds a {config.model_type!r} model, but this takes a "
                f"{kind.__name__}; give a CLIP checkpoint"
            )
        return load_whole(
            kind,
            folder,
            dtype=dtype,
            use_safetensors=any(folder.glob("*.safetensors")),
            weights_only=True,
            attn_implementation="sdpa",
        )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Translate safetensors' error for a full disk into an OSError.

    Raises OSError: see above.
    """
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise OSError(errno.EIO, first_line(error)) from error


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write JSON with an indent of two."""
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
