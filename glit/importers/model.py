"""Published fine-tuned CLIPs, files of tensors without a folder, as folders that glit takes.

Long-CLIP's checkpoints have the names of OpenAI's code and two tables of text positions: the first
20 rows of one and the others of the second are used (Long-CLIP, section 3.1). GOAL's have the names
of transformers. What such a file does not hold, the tokenizer, the activation and how images are
prepared, is that of the model it was fine-tuned from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from glit.backends.model_files import file_hash
from glit.backends.weights import resolve
from glit.clip.folder import load_clip, read_preprocessing, write_model
from glit.clip.open_clip import clip_names, shape_fault
from glit.clip.text_window import KEPT_POSITIONS
from glit.errors import InputError, WeightsError, first_line
from glit.storage.outputs import new_folder

_WRAPPERS = ("state_dict", "model")
_PREFIX = "module."
"""Of what was trained under DistributedDataParallel."""
_SECOND_TABLE = "positional_embedding_res"
_POSITIONS = "text_model.embeddings.position_embedding.weight"
_NO_WEIGHTS = {"input_resolution", "context_length", "vocab_size"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A checkpoint that was written as a folder."""

    context: int
    """Text positions."""
    parameters: int
    sha256: str
    """Of the file that was read."""


def import_model(checkpoint: Path, output: Path, *, like: str) -> ImportedModel:
    """Write the folder of a CLIPModel with a checkpoint's weights.

    Args:
        checkpoint: a state dict, as ``torch.save`` or safetensors write it; read as plain tensors,
            no code in it runs.
        output: the folder, which does not exist yet.
        like: the CLIP it was fine-tuned from, a name, a folder or a hub id: its architecture,
            tokenizer and preprocessing are taken. The text window is the checkpoint's.

    Raises:
        InputError: there is no such file, or it is no state dict of tensors.
        WeightsError: the weights are not those of a CLIP of that architecture, or not finite.
    """
    from transformers import CLIPModel

    found = resolve(like)
    start = load_clip(found.path)
    weights = _weights(_state_dict(checkpoint), checkpoint)
    config: Any = start.config
    if (positions := weights.get(_POSITIONS)) is not None and positions.ndim == 2:
        config.text_config.max_position_embeddings = len(positions)
    with torch.device("meta"):
        shapes = {name: each.shape for name, each in CLIPModel(config).state_dict().items()}
    if fault := shape_fault(weights, shapes, wanted_by=like):
        raise WeightsError(
            f"{checkpoint}: {fault}; name the CLIP it was fine-tuned from with --like"
        )
    if bad := [name for name, each in weights.items() if not each.isfinite().all()]:
        raise WeightsError(f"{checkpoint}: {bad[0]} is not finite; download it again")
    model = CLIPModel.from_pretrained(
        None,  # pyright: ignore[reportArgumentType]
        config=config, state_dict=weights, dtype=torch.float32,
    )  # fmt: skip
    with new_folder(output) as folder:
        write_model(
            folder, model, start=found.path, preprocessing=read_preprocessing(found.path)
        )  # fmt: skip
    return ImportedModel(
        context=config.text_config.max_position_embeddings,
        parameters=sum(each.numel() for each in weights.values()),
        sha256=file_hash(checkpoint),
    )


def _state_dict(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file by name.

    Raises:
        InputError: see :func:`import_model`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise InputError(f"{path}: no such file; want a checkpoint (.pt, .bin, .safetensors)")
    try:
        if path.suffix == ".safetensors":
            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, UnpicklingError, RuntimeError, EOFError) as error:
        raise InputError(
            f"{path}: no file of tensors, or one that is cut short ({first_line(error)})"
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(found, dict) and isinstance(found.get(wrapper), dict):
            found = found[wrapper]
    if not isinstance(found, dict) or not all(isinstance(each, Tensor) for each in found.values()):
        raise InputError(f"{path}: holds no state dict, whose names have tensors")
    return found


def _weights(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights under CLIPModel's names, in float32.

    Raises:
        InputError: the second table of positions is not like the first.
    """
    named = {
        name.removeprefix(_PREFIX): value
        for name, value in found.items()
        if not name.endswith("position_ids") and name not in _NO_WEIGHTS
    }
    if (second := named.pop(_SECOND_TABLE, None)) is not None:
        first = named.get("positional_embedding")
        if first is None or first.shape != second.shape or first.ndim != 2:
            raise InputError(f"{path}: its two tables of text positions are not alike")
        table = torch.cat([first[:KEPT_POSITIONS], second[KEPT_POSITIONS:]])
        named["positional_embedding"] = table
    return dict(clip_names(named))
