"""Load SAM: transformers' ``SamModel``, how its images are normalised, and its thresholds.

A folder is that of every model of transformers. ``mask_thresholds.json`` may hold the thresholds
that were fitted to its weights; the published models have none and get the published ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.errors import WeightsError
from glit.models.pretrained import load_with_processor
from glit.models.weights import Resolved
from glit.plain import MisfitError, as_plain, from_plain, limited

if TYPE_CHECKING:
    from transformers import SamModel

MODEL_TYPE = "sam"
THRESHOLDS_NAME = "mask_thresholds.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskThresholds:
    """Arguments of ``SamAutomaticMaskGenerator`` that belong to the weights, with its defaults
    (Segment Anything, Kirillov et al. 2023, section B)."""

    points_per_side: int = limited(32, least=1)
    """The grid has the square of this many point prompts; each gives three masks."""
    pred_iou_thresh: float = 0.88
    """Masks with a predicted IoU up to this are dropped."""
    stability_score_thresh: float = 0.95
    """Masks with a stability score below this are dropped."""
    stability_score_offset: float = 1.0
    """In logits, around the threshold of the mask. The stability score is the IoU of two masks: the
    pixels above plus this, and those above minus this."""
    box_nms_thresh: float = 0.7
    """Non-maximum suppression: of two masks whose boxes have a higher IoU, the one with the lower
    predicted IoU is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sam:
    """A model in float32 and evaluation mode, with all that its masks depend on."""

    model: SamModel
    thresholds: MaskThresholds = MaskThresholds()
    pixel_mean: tuple[float, ...] = (123.675, 116.28, 103.53)
    """Mean of red, green and blue, of values from 0 to 255; it is subtracted."""
    pixel_std: tuple[float, ...] = (58.395, 57.12, 57.375)
    """Standard deviation of the same; then it divides."""

    @property
    def side(self) -> int:
        """Side of the encoder's square input in pixels."""
        vision: Any = self.model.config.vision_config
        return vision.image_size


def load_sam(model: Resolved) -> Sam:
    """The model of a folder.

    Raises:
        WeightsError: the folder holds another model, or only a part of one.
    """
    import torch
    from transformers import SamImageProcessor, SamModel

    processor: Any
    processor, sam = load_with_processor(
        SamImageProcessor, SamModel, model, name="SAM", dtype=torch.float32
    )
    return Sam(
        model=sam.eval(),
        thresholds=read_thresholds(model.path),
        pixel_mean=tuple(255 * each for each in processor.image_mean),
        pixel_std=tuple(255 * each for each in processor.image_std),
    )


def read_thresholds(folder: Path) -> MaskThresholds:
    """The thresholds of a model's folder; the published ones if it has none.

    Raises:
        WeightsError: the file is damaged.
    """
    path = folder / THRESHOLDS_NAME
    try:
        return from_plain(MaskThresholds, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return MaskThresholds()
    except (OSError, ValueError, MisfitError) as error:
        raise WeightsError(
            f"{path}: not the thresholds of automatic masks ({error}); copy the model again"
        ) from error


def write_thresholds(thresholds: MaskThresholds, folder: Path) -> None:
    """Write ``mask_thresholds.json``, without those that are the published ones."""
    text = json.dumps(as_plain(thresholds), indent=2, sort_keys=True)
    (folder / THRESHOLDS_NAME).write_text(text + "\n", encoding="utf-8")
