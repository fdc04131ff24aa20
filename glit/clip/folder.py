"""Load and write a CLIPModel's folder, and read its image preprocessing."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from glit.clip import ImageFit
from glit.clip.open_clip import image_values, is_open_clip, load_open_clip
from glit.errors import WeightsError, first_line
from glit.runtime.gpu_errors import is_out_of_memory, ruins_process
from glit.runtime.pretrained import load_whole

if TYPE_CHECKING:
    from transformers import CLIPModel

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
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALVES = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """A model's image preprocessing, from its preprocessor_config.json."""

    mean: tuple[float, float, float] = CLIP_MEAN
    """Per channel, on a scale of 0 to 1."""

    std: tuple[float, float, float] = CLIP_STD
    """Per channel, on a scale of 0 to 1."""

    fit: ImageFit = "centre-crop"
    """How the image becomes the model's square."""

    mode: Literal["bicubic", "bilinear"] = "bicubic"
    """Interpolation that the model's processor resizes with; training and evaluation resize
    bicubically."""


def says_preprocessing(folder: Path) -> bool:
    """Whether a model's folder says how its images are prepared."""
    names = ("preprocessor_config.json", "processor_config.json")
    return any((folder / name).is_file() for name in names) or is_open_clip(folder)


def read_preprocessing(folder: Path) -> Preprocessing:
    """A model folder's preprocessing; CLIP's published values for what is missing.

    Warns where nothing is said at all.
    """
    alone, inside = folder / "preprocessor_config.json", folder / "processor_config.json"
    values: dict[str, Any] = {}
    if alone.is_file():
        values = json.loads(alone.read_text(encoding="utf-8"))
    elif inside.is_file():  # where newer transformers keep it
        values = json.loads(inside.read_text(encoding="utf-8")).get("image_processor") or {}
    elif is_open_clip(folder):
        values = image_values(folder)
    else:
        warnings.warn(
            f"{folder}: no preprocessor_config.json says how its images were prepared, so CLIP's "
            "crop, mean and deviation are taken; figures are wrong if it was trained with others",
            stacklevel=2,
        )
    siglip = "Siglip" in str(values.get("image_processor_type"))  # its processor's own defaults
    fit: ImageFit = "centre-crop" if values.get("do_center_crop", not siglip) else "resize"
    return Preprocessing(
        mean=_three(values.get("image_mean") or (HALVES if siglip else CLIP_MEAN)),
        std=_three(values.get("image_std") or (HALVES if siglip else CLIP_STD)),
        fit=fit,
        mode="bilinear" if values.get("resample") == 2 else "bicubic",
    )


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue


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
    write_json(folder / "preprocessor_config.json", _preprocessor_config(model, preprocessing))


def _preprocessor_config(model: CLIPModel, preprocessing: Preprocessing) -> dict[str, Any]:
    vision_config: Any = model.config.vision_config
    side = vision_config.image_size
    cropped = preprocessing.fit == "centre-crop"
    siglip = model.config.model_type == "siglip"
    return {
        # SigLIP's own image processor squeezes, and cannot crop
        "image_processor_type": f"{'Siglip' if siglip and not cropped else 'CLIP'}ImageProcessor",
        "processor_class": f"{'Siglip' if siglip else 'CLIP'}Processor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": side} if cropped else {"height": side, "width": side},
        "resample": 3,
        "do_center_crop": cropped,
        "crop_size": {"height": side, "width": side},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }


def load_clip(folder: Path) -> CLIPModel:
    """A CLIPModel in float32: its safetensors, or the pickle that glit.backends.weights let pass;
    or OpenCLIP's weights.

    Raises:
        WeightsError: the folder holds another kind of model, a part of one, or none that can be
            loaded.
    """
    from transformers import CLIPModel

    return load_open_clip(folder) if is_open_clip(folder) else load_model(CLIPModel, folder)


def load_model(kind: type[M], folder: Path) -> M:
    """A model of this class of transformers, in float32.

    Raises:
        WeightsError: as :func:`load_clip`.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig

    wanted: Any = kind
    try:
        config = AutoConfig.from_pretrained(folder)
        if config.model_type != wanted.config_class.model_type:
            raise WeightsError(
                f"{folder}: holds a {config.model_type!r} model, but this takes a "
                f"{kind.__name__}; give a CLIP checkpoint"
            )
        return load_whole(
            kind,
            folder,
            dtype=torch.float32,
            use_safetensors=any(folder.glob("*.safetensors")),
            weights_only=True,
            attn_implementation="sdpa",
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        if ruins_process(error) or is_out_of_memory(error):
            raise
        raise WeightsError(
            f"{folder}: no {kind.__name__} can be loaded from it ({first_line(error)})"
        ) from error


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
