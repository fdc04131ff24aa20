"""Read and write how a model's images are prepared: its preprocessor_config.json.

transformers reads the file. Every key is followed, or refused by its name, or on the short list of
those that cannot matter: a key that is ignored gives embeddings of other images than the model was
trained on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glit.errors import WeightsError
from glit.models.clip.image_fit import ImageFit
from glit.models.pretrained import as_weights_error

if TYPE_CHECKING:
    from transformers import CLIPModel

IMAGE_PROCESSOR = "preprocessor_config.json"
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_FACTOR = 1 / 255
_MODES: dict[int, Literal["bicubic", "bilinear"]] = {2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers."""
_FOLLOWED = {
    "image_processor_type", "size", "default_to_square", "resample", "do_center_crop", "crop_size",
    "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "do_resize",
}  # fmt: skip
_WITHOUT_EFFECT = {
    "processor_class", "_processor_class", "_valid_processor_keys", "do_convert_rgb",
    "data_format", "input_data_format", "return_tensors", "device", "disable_grouping",
    "use_fast", "transformers_version",
    "patch_size", "max_num_patches",
}  # fmt: skip
"""Images are always RGB here; the last two are read where a model takes images of any shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """A model's image preprocessing."""

    mean: tuple[float, float, float] = CLIP_MEAN
    """Per channel, on a scale of 0 to 1."""

    std: tuple[float, float, float] = CLIP_STD
    """Per channel, on a scale of 0 to 1."""

    fit: ImageFit = "centre-crop"
    """The fit of an image into the model's square."""

    mode: Literal["bicubic", "bilinear"] = "bicubic"
    """Interpolation that the model's processor resizes with; training resizes bicubically."""

    shortest: int = 0
    """With ``centre-crop``: the shorter side after resizing, in pixels; 0 is the model's side."""


def says_preprocessing(folder: Path) -> bool:
    """Return whether a model's folder says how its images are prepared."""
    names = (IMAGE_PROCESSOR, "processor_config.json")
    return any((folder / name).is_file() for name in names)


def read_preprocessing(folder: Path, *, side: int = 0) -> Preprocessing:
    """A model folder's preprocessing; CLIP's published values, with a warning, if nothing is said.

    Args:
        folder: of the model.
        side: of the model's input square, in pixels, which the file has to agree with; 0: any.

    Raises:
        WeightsError: the file is damaged, asks for what is not done here, or for images of another
            size than the model's.
    """
    if not says_preprocessing(folder):
        warnings.warn(
            f"{folder}: no {IMAGE_PROCESSOR} says how its images were prepared, so CLIP's "
            "crop, mean and deviation are taken; figures are wrong if it was trained with others",
            stacklevel=2,
        )
        return Preprocessing()
    from transformers import AutoImageProcessor

    with as_weights_error(f"{folder}: its {IMAGE_PROCESSOR} cannot be read"):
        processor: Any = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        values = processor.to_dict()
    try:
        found, given_side = _preprocessing(values)
    except (TypeError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"{folder}: {IMAGE_PROCESSOR}: {error}; correct the file, or give another model"
        ) from error
    if side and given_side and given_side != side:
        raise WeightsError(
            f"{folder}: its {IMAGE_PROCESSOR} makes images of {given_side} pixels, but the model "
            f"takes {side}; correct the one or the other"
        )
    return found


def _preprocessing(values: Mapping[str, Any]) -> tuple[Preprocessing, int]:
    """Return the preprocessing that an image processor of transformers has, and the side of the
    square; 0 if it has none.

    Raises:
        ValueError: names the key.
    """
    kind = values["image_processor_type"]
    if not kind.startswith(("CLIP", "Siglip")):
        raise ValueError(f"image_processor_type = {kind!r}: wanted CLIP's or SigLIP's")
    for key, value in values.items():
        if key not in _FOLLOWED | _WITHOUT_EFFECT and value:
            raise ValueError(f"{key} = {value!r}: this key is not followed here")
    if not values["do_resize"]:
        raise ValueError("do_resize = false: the model takes images of one size")
    if (resample := values["resample"]) not in _MODES:
        raise ValueError(f"resample = {resample!r}: wanted 2 (bilinear) or 3 (bicubic)")
    mean, std = _normalisation(values)
    fit, shortest, side = _fit(values)
    shortest = 0 if shortest == side else shortest
    found = Preprocessing(mean=mean, std=std, fit=fit, mode=_MODES[resample], shortest=shortest)
    return found, side


Three = tuple[float, float, float]


def _normalisation(values: Mapping[str, Any]) -> tuple[Three, Three]:
    """Mean and deviation on a scale of 0 to 1, with the factor that pixels are multiplied by."""
    mean, std = (three(key, values[key]) for key in ("image_mean", "image_std"))
    if min(std) <= 0:
        raise ValueError(f"image_std = {list(std)}: wanted numbers above 0")
    if not values["do_normalize"]:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    factor = values["rescale_factor"] if values["do_rescale"] else 1.0
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise ValueError(f"rescale_factor = {factor!r}: wanted a number above 0")
    if math.isclose(factor, _FACTOR, rel_tol=1e-6):
        return mean, std
    a, b, c = (each / (255 * factor) for each in mean)
    d, e, f = (each / (255 * factor) for each in std)
    return (a, b, c), (d, e, f)


def _fit(values: Mapping[str, Any]) -> tuple[ImageFit, int, int]:
    """Return how images become the square, their shorter side before it is cut out, and its side;
    0 where the model takes images of any shape."""
    cropped = values.get("do_center_crop")
    side = _square("crop_size", values["crop_size"]) if cropped else 0
    size = values.get("size")
    if size is not None and set(size) == {"shortest_edge"}:
        shortest = _square("size", size["shortest_edge"])
        if not cropped:
            raise ValueError(f"size = {size}: without do_center_crop images would not be square")
        if side and shortest < side:
            raise ValueError(f"size = {size}: smaller than crop_size, which would be padded")
        return "centre-crop", shortest, side or shortest
    squeezed = _square("size", size)
    if cropped and squeezed and side and squeezed != side:
        raise ValueError(f"size = {size}: it squeezes before it crops to {side}; not done here")
    return ("centre-crop", 0, side) if cropped and not squeezed else ("resize", 0, squeezed)


def _square(key: str, value: Any) -> int:
    """The side of a square; 0 for None."""
    if isinstance(value, dict) and set(value) == {"height", "width"}:
        value = value["height"] if value["height"] == value["width"] else value
    if value is None:
        return 0
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} = {value!r}: wanted the side of a square")
    return value


def three(key: str, value: Any) -> Three:
    """A number for each channel.

    Raises:
        ValueError: it is none; names the key.
    """
    if isinstance(value, int | float):
        value = [value] * 3
    if not (
        isinstance(value, list | tuple)
        and len(value) == 3
        and all(isinstance(each, int | float) and math.isfinite(each) for each in value)
    ):
        raise ValueError(f"{key} = {value!r}: wanted three numbers")
    red, green, blue = map(float, value)
    return red, green, blue


def processor_config(model: CLIPModel, preprocessing: Preprocessing) -> dict[str, Any]:
    """The values of a preprocessor_config.json."""
    vision_config: Any = model.config.vision_config
    side = vision_config.image_size
    cropped = preprocessing.fit == "centre-crop"
    siglip = model.config.model_type == "siglip"
    shortest = {"shortest_edge": preprocessing.shortest or side}
    return {
        # SigLIP's own image processor squeezes, and cannot crop
        "image_processor_type": f"{'Siglip' if siglip and not cropped else 'CLIP'}ImageProcessor",
        "processor_class": f"{'Siglip' if siglip else 'CLIP'}Processor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": shortest if cropped else {"height": side, "width": side},
        "resample": next(number for number, mode in _MODES.items() if mode == preprocessing.mode),
        "do_center_crop": cropped,
        "crop_size": {"height": side, "width": side},
        "do_rescale": True,
        "rescale_factor": _FACTOR,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }
