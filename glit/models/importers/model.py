"""Published models that are files of tensors without a folder, as folders that glit takes.

Long-CLIP's checkpoints have the names of OpenAI's code and two tables of text positions: the first
20 rows of one and the others of the second are used (Long-CLIP, section 3.1). GOAL's have the names
of transformers. FG-CLIP's folders have three tables and two projections of texts, of which those
for long texts are used (FG-CLIP, section 3.1). What a file does not hold, the tokenizer, the
activation and how images are prepared, is that of the model it was fine-tuned from.
OpenCLIP's folders have a configuration of their own (:mod:`glit.models.importers.open_clip`);
segment-anything's checkpoints are known by their names (:mod:`glit.models.importers.sam`).
"""

from __future__ import annotations

import argparse
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from glit.errors import InputError, WeightsError, first_line
from glit.models.clip.folder import clip_config, disk_errors, write_model
from glit.models.clip.image_processor import Preprocessing, read_preprocessing
from glit.models.clip.text_window import KEPT_POSITIONS
from glit.models.files import (
    CONFIG,
    OPEN_CLIP_CONFIG,
    file_hash,
    has_tokenizer,
    model_type,
    weight_files,
)
from glit.models.importers import open_clip, sam
from glit.models.importers.open_clip import clip_names, shape_fault
from glit.models.importers.tensor_bombs import check_stored, check_strides
from glit.models.tokenizer import TextTokenizer
from glit.models.weights import resolve
from glit.storage.outputs import new_folder

Activation = Literal["quick_gelu", "gelu"]
DEFAULT_LIKE = "clip-vit-b-16"
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "weights")
_COMPILED = "_orig_mod."
"""Put into names by torch.compile."""
_SECOND_TABLE = "positional_embedding_res"
_POSITIONS = "text_model.embeddings.position_embedding"
_NO_WEIGHTS = {"input_resolution", "context_length", "vocab_size"}
"""Numbers in OpenAI's archives, whose activation is known."""
_LONG_PROJECTION = "text_filip_projection.weight"
_OF_FG_CLIP = {"logit_scale_finegraind", "logit_scale_hardneg"}
"""Scales of losses that embeddings do not depend on."""
_NUMBERS = [
    argparse.Namespace,
    np.float64(0).__reduce__()[0],  # what makes a scalar; its place depends on NumPy's version
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
    np.dtypes.Int32DType,
    np.dtypes.BoolDType,
]
"""Plain values that trainers save beside the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A checkpoint that was written as a folder."""

    parameters: int
    sha256: str
    """SHA-256 of the file that was read, or of the first one of a folder."""
    context: int = 0
    """Text positions of a CLIP."""
    activation: str = ""
    """Activation of both towers of a CLIP, as transformers calls it."""


def import_model(
    checkpoint: Path, output: Path, *, like: str = "", activation: Activation | None = None
) -> ImportedModel:
    """Write the folder of a CLIPModel, or of a SamModel, with a checkpoint's weights.

    Args:
        checkpoint: a state dict, as ``torch.save`` or safetensors write it, or a folder of
            OpenCLIP's or FG-CLIP's; read as plain tensors, no code in it runs.
        output: the folder, which does not exist yet.
        like: the CLIP it was fine-tuned from, a name, a folder or a hub id, for what the checkpoint
            does not hold: architecture, tokenizer, preprocessing (of OpenCLIP's folders only the
            tokenizer); by default the checkpoint's own folder, else :data:`DEFAULT_LIKE`. The text
            window is the checkpoint's.
        activation: of both towers; that of ``like`` by default. No file of weights says it.

    Raises:
        InputError: there is no such file, it is no state dict of tensors, or ``like`` or
            ``activation`` is given for a SAM, which has neither.
        WeightsError: the weights are not those of a CLIP of that architecture or of a SAM, or not
            finite.
    """
    from transformers import CLIPModel

    found = _state_dict(checkpoint)
    if any(name.startswith(sam.PREFIX) for name in found):
        if like or activation is not None:
            raise InputError(f"{checkpoint}: a SAM, which takes no --like and no --activation")
        return _import_sam(found, checkpoint, output)
    base = _base(checkpoint, like)
    config = base.config
    if activation is not None:
        config.text_config.hidden_act = config.vision_config.hidden_act = activation
    elif base.is_other and _is_open_clips(found) and config.text_config.hidden_act == "quick_gelu":
        warnings.warn(
            f"{checkpoint}: taken with the activation quick_gelu of {like or DEFAULT_LIKE}; models "
            "of OpenCLIP, whose weights have these names too, use gelu unless their name ends in "
            "-quickgelu: name the right one with --activation",
            stacklevel=2,
        )
    weights = _weights(found, checkpoint)
    positions = weights.get(f"{_POSITIONS}.weight")
    if base.is_other and positions is not None and positions.ndim == 2:
        config.text_config.max_position_embeddings = len(positions)
    with torch.device("meta"):
        shapes = {name: each.shape for name, each in CLIPModel(config).state_dict().items()}
    if fault := shape_fault(weights, shapes, wanted_by=base.name):
        raise WeightsError(f"{checkpoint}: {fault}{base.advice}")
    _check_finite(weights, checkpoint)
    model = CLIPModel.from_pretrained(
        None,  # pyright: ignore[reportArgumentType]
        config=config, state_dict=weights, dtype=torch.float32,
    )  # fmt: skip
    preprocessing = base.preprocessing
    if _LONG_PROJECTION in found:  # FG-CLIP squeezes images before its processor sees them
        preprocessing = replace(preprocessing, fit="resize", shortest=0)
    with new_folder(output) as folder:
        write_model(folder, model, start=base.folder, preprocessing=preprocessing)
    return ImportedModel(
        context=config.text_config.max_position_embeddings,
        parameters=sum(each.numel() for each in weights.values()),
        activation=config.text_config.hidden_act,
        sha256=file_hash(_weight_files(checkpoint)[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What a CLIP's checkpoint does not hold."""

    config: Any
    """A CLIPConfig."""
    preprocessing: Preprocessing
    folder: Path
    """Of the tokenizer's files."""
    name: str
    """What states the shapes of weights, for messages."""
    is_other: bool = True
    """Whether it is of the model that the checkpoint was fine-tuned from."""

    @property
    def advice(self) -> str:
        return "; name the CLIP it was fine-tuned from with --like" if self.is_other else ""


def _base(checkpoint: Path, like: str) -> _Base:
    """Raises WeightsError: OpenCLIP's folder cannot be read, or its tokenizer is another's."""
    if not (checkpoint / OPEN_CLIP_CONFIG).is_file():
        own = model_type(checkpoint) == "clip" and has_tokenizer(checkpoint)
        folder = checkpoint if own and not like else resolve(like or DEFAULT_LIKE).path
        return _Base(
            config=clip_config(folder), preprocessing=read_preprocessing(folder), folder=folder,
            name=like or str(folder),
        )  # fmt: skip
    own = has_tokenizer(checkpoint) and not like
    folder = checkpoint if own else resolve(like or DEFAULT_LIKE).path
    config: Any = open_clip.open_clip_config(checkpoint)
    if (found := TextTokenizer(folder).end_id) != (end := config.text_config.eos_token_id):
        raise WeightsError(
            f"{checkpoint}: the tokenizer in {folder} ends a text with token {found}, and the "
            f"weights were trained with {end}; name a CLIP with their tokenizer with --like"
        )
    return _Base(
        config=config, preprocessing=open_clip.preprocessing(checkpoint), folder=folder,
        name=OPEN_CLIP_CONFIG, is_other=False,
    )  # fmt: skip


def _import_sam(found: Mapping[str, Tensor], checkpoint: Path, output: Path) -> ImportedModel:
    """Write the folder of a SamModel with the weights of a checkpoint of segment-anything's.

    Raises:
        WeightsError: the weights are not those of its ViT-B, L or H, or not finite.
    """
    from transformers import SamModel

    weights = sam.sam_weights(found)
    try:
        config = sam.sam_config(weights)
    except (KeyError, IndexError, ZeroDivisionError) as error:
        raise WeightsError(
            f"{checkpoint}: not a checkpoint of segment-anything's ViT-B, L or H "
            f"({type(error).__name__}: {error}); give one of these, or a SamModel of transformers"
        ) from error
    with torch.device("meta"):
        shapes = {name: each.shape for name, each in SamModel(config).state_dict().items()}
    del shapes[sam.TIED]
    if fault := shape_fault(weights, shapes, wanted_by="segment-anything"):
        raise WeightsError(f"{checkpoint}: {fault}; give a checkpoint of ViT-B, L or H")
    _check_finite(weights, checkpoint)
    with new_folder(output) as folder, disk_errors():
        sam.sam_model(config, weights).save_pretrained(folder)
        sam.sam_processor(config).save_pretrained(folder)
    parameters = sum(each.numel() for each in weights.values())
    return ImportedModel(parameters=parameters, sha256=file_hash(weight_files(checkpoint)[0]))


def _check_finite(weights: Mapping[str, Tensor], checkpoint: Path) -> None:
    if bad := [name for name, each in weights.items() if not each.isfinite().all()]:
        raise WeightsError(f"{checkpoint}: {bad[0]} is not finite; download it again")


def _state_dict(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, or of a folder's files, by name without what a trainer put before it.

    Raises:
        InputError: see :func:`import_model`.
    """
    if path.is_dir():
        files = [file for file in _weight_files(path) if file.suffix == ".safetensors"]
        if not files or not any((path / each).is_file() for each in (CONFIG, OPEN_CLIP_CONFIG)):
            raise InputError(
                f"{path}: want a folder with *.safetensors and {CONFIG} or {OPEN_CLIP_CONFIG}, or "
                "a file of weights"
            )
        found: Any = {name: each for file in files for name, each in _load(file).items()}
    elif path.is_file():
        found = _load(path)
    else:
        raise InputError(f"{path}: no such file; want a checkpoint (.pt, .bin, .safetensors)")
    while isinstance(found, dict) and (
        wrapper := next((w for w in _WRAPPERS if isinstance(found.get(w), dict)), None)
    ):
        found = found[wrapper]
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(each, Tensor) for name, each in found.items()
    ):
        raise InputError(f"{path}: holds no state dict, whose names have tensors")
    return _unprefixed({name.replace(_COMPILED, ""): each for name, each in found.items()}, path)


def _weight_files(path: Path) -> list[Path]:
    """The weights of a file or a folder; of OpenCLIP's format those alone, whatever lies beside."""
    theirs = path / open_clip.WEIGHTS
    return [theirs] if theirs.is_file() else weight_files(path)


def _load(path: Path) -> Any:
    """Return the content of a file: plain values and tensors.

    Raises:
        InputError: it is no such file, or it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with path.open("rb") as stream:
        if stream.read(512).lstrip()[:1] == b"<":
            raise InputError(f"{path}: a web page, no checkpoint; download the file itself")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            check_stored(path)
            with zipfile.ZipFile(path) as archive:
                if any("/code/" in name for name in archive.namelist()):
                    raise InputError(
                        f"{path}: a TorchScript archive, which holds code; give the model's state "
                        "dict or safetensors (those of OpenAI's CLIPs are on the Hugging Face Hub)"
                    )
        with torch.serialization.safe_globals(_NUMBERS):
            found = torch.load(path, map_location="cpu", weights_only=True)
            check_strides(found)
            return found
    except (
        OSError, SafetensorError, UnpicklingError, RuntimeError, EOFError, ValueError, KeyError,
        AttributeError, TypeError, IndexError, RecursionError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path}: no file of tensors, or one that is cut short ({first_line(error)[:200]})"
        ) from error


def _unprefixed(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights of the model in a trainer's module, without the module's names before theirs, and
    without what stands beside it there, of which a warning says so.

    Raises:
        InputError: there are two models.
    """
    scale = "logit_scale"
    prefixes = [name.removesuffix(scale) for name in found if name.split(".")[-1] == scale]
    if len(prefixes) > 1:
        shown = ", ".join(map(repr, prefixes))
        raise InputError(f"{path}: holds {len(prefixes)} models, under {shown}; save one of them")
    prefix = prefixes[0] if prefixes else ""
    beside = [name for name in found if not name.startswith(prefix)]
    if beside:
        warnings.warn(
            f"{path}: {len(beside)} weights beside {prefix!r} are left out, such as {beside[0]!r}",
            stacklevel=2,
        )
    return {
        name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)
    }


def _is_open_clips(found: Mapping[str, Tensor]) -> bool:
    """Return whether the names may be of OpenCLIP's trainer, and not of an archive of OpenAI's or
    of Long-CLIP."""
    told = _NO_WEIGHTS | {_SECOND_TABLE}
    return "visual.proj" in found and not told.intersection(found)


def _weights(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights under CLIPModel's names, in float32.

    Raises:
        InputError: the tables of positions are not alike.
    """
    named = {
        name: value
        for name, value in found.items()
        if not name.endswith("position_ids") and name not in _NO_WEIGHTS
    }
    if _LONG_PROJECTION in named:
        named = {name: value for name, value in named.items() if name not in _OF_FG_CLIP}
        named["text_projection.weight"] = named.pop(_LONG_PROJECTION)
        first, second = (named.pop(f"{_POSITIONS}_{each}.weight", None) for each in ("ori", "res"))
        named[f"{_POSITIONS}.weight"] = _joined(first, second, path)
    elif (second := named.pop(_SECOND_TABLE, None)) is not None:
        first = named.get("positional_embedding")
        named["positional_embedding"] = _joined(first, second, path)
    return dict(clip_names(named))


def _joined(first: Tensor | None, second: Tensor | None, path: Path) -> Tensor:
    """The first positions of one table and the others of the second."""
    if first is None or second is None or first.shape != second.shape or first.ndim != 2:
        raise InputError(f"{path}: its two tables of text positions are not alike")
    return torch.cat([first[:KEPT_POSITIONS], second[KEPT_POSITIONS:]])
