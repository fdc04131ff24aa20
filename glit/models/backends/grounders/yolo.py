"""YOLO-World (Cheng et al. 2024) and YOLOE (Wang et al. 2025) by ultralytics (AGPL-3.0).

Their text encoders are no part of a checkpoint: ultralytics loads OpenAI's CLIP or MobileCLIP from
a file of its own weights folder, with the tokenizer of the package ``clip``. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glit.errors import WeightsError
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.backends.grounders.choose import best_of_each
from glit.models.backends.protocols import GrounderConfig, PhraseDetections
from glit.models.backends.ultralytics_models import check_checkpoint, load_yolo
from glit.models.device import pick_device
from glit.models.weights import Resolved

_NAME = "ground.backend = 'ultralytics'"
_CLIP = "clip/ViT-B-32.pt"
_TEXT_FILES = {"mobileclip": "mobileclip_blt.ts", "mobileclip2": "mobileclip2_b.ts", "clip": _CLIP}
"""By the name of a text encoder in YOLOE's checkpoints: its file in ultralytics' weights folder."""
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class UltralyticsOptions:
    """Keys of [ground] with backend = "ultralytics"."""

    allow_pickle: bool = False
    """Allow ultralytics' checkpoints, which are pickles and can run code."""


class UltralyticsGrounder:
    """A YOLO-World or YOLOE model; all phrases of an image in one pass.

    Raises:
        WeightsError: it is neither, cannot be loaded, or its text encoder is not here.
    """

    def __init__(self, config: GrounderConfig, model: Resolved) -> None:
        _check(config, model)
        loaded = load_yolo(model, task=None, backend=_NAME)
        import torch

        self._torch, self._config = torch, config
        self._model: Any = loaded.model
        self._is_world = type(self._model).__name__ == "WorldModel"
        head = self._model.model[-1]
        if not self._is_world and not type(self._model).__name__.startswith("YOLOE"):
            raise WeightsError(
                f"model {model.name!r}: a {type(self._model).__name__} of ultralytics, but {_NAME} "
                "loads YOLO-World and YOLOE; name such a checkpoint"
            )
        if hasattr(head, "lrpc") or getattr(head, "is_fused", False):
            raise WeightsError(
                f"model {model.name!r}: its classes are fixed (prompt-free or fused); name a "
                "checkpoint of YOLOE that takes text"
            )
        _check_text_encoder(self._model, model)
        self._model.end2end = False  # one score a phrase; the other head keeps only the best
        self._device = pick_device(config.device)
        self._model.to(self._device).float().eval()
        self._size = loaded.overrides.get("imgsz", 640)
        self._known: dict[str, Any] = {}

    def find(
        self, images: Sequence[Pixels], phrases: Sequence[Sequence[str]]
    ) -> list[list[PhraseDetections]]:
        """Find the phrases of each image; see :class:`glit.models.backends.protocols.Grounder`.

        Raises:
            FloatingPointError: the model answered NaN or infinity.
        """
        with self._torch.inference_mode():
            self._learn({phrase for each in phrases for phrase in each})
            return [
                self._find(image, own) if own else []
                for image, own in zip(images, phrases, strict=True)
            ]

    def _learn(self, phrases: set[str]) -> None:
        """Encode the phrases that are not known yet."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        if new := sorted(phrases - self._known.keys()):
            read = self._model.get_text_pe(new, cache_clip_model=True)[0]
            self._known |= zip(new, read, strict=True)

    def _find(self, image: Pixels, phrases: Sequence[str]) -> list[PhraseDetections]:
        from ultralytics.utils import ops

        names = list(dict.fromkeys(phrases))
        text = self._torch.stack([self._known[name] for name in names])[None]
        if self._is_world:
            self._model.txt_feats, self._model.model[-1].nc = text, len(names)
        else:
            self._model.set_classes(names, text)
        pixels = self._prepare(image)
        answer = self._model.predict(pixels)
        while isinstance(answer, (tuple, list)):  # masks and the training head's follow
            answer = answer[0]
        height, width = image.shape[:2]
        corners: Any = ops.xywh2xyxy(answer[0, :4].T.float())
        scaled: Any = ops.scale_boxes(pixels.shape[2:], corners, (height, width))
        boxes = scaled.cpu().numpy()
        scores = answer[0, 4 : 4 + len(names)].T.float().cpu().numpy()
        found = best_of_each(boxes, scores, width=width, height=height, config=self._config)
        by_name = dict(zip(names, found, strict=True))
        return [by_name[phrase] for phrase in phrases]

    def _prepare(self, image: Pixels) -> Any:
        """Prepare an image as ultralytics' predictor does with a single image."""
        from ultralytics.data.augment import LetterBox

        stride = int(self._model.stride.max())
        size = self._size if isinstance(self._size, int) else max(self._size)
        fitted: Any = LetterBox((size, size), auto=True, stride=stride)(image=image)
        chw = np.ascontiguousarray(fitted.transpose(2, 0, 1))
        return self._torch.from_numpy(chw).to(self._device).float()[None] / 255


def _check_text_encoder(yolo: Any, model: Resolved) -> None:
    """Refuse to begin where ultralytics would download its text encoder."""
    from ultralytics.utils import WEIGHTS_DIR

    kind = "clip:ViT-B/32"
    if type(yolo).__name__ != "WorldModel":
        kind = getattr(yolo, "text_model", "mobileclip:blt")
    file = _TEXT_FILES.get(kind.partition(":")[0], kind)
    here = (Path(WEIGHTS_DIR) / file, Path(file))
    if importlib.util.find_spec("clip") is None or not any(each.is_file() for each in here):
        raise WeightsError(
            f"model {model.name!r}: its text encoder {kind} is not here; it wants the package clip "
            "(pip install git+https://github.com/ultralytics/CLIP.git) and the file "
            f"{Path(WEIGHTS_DIR) / file}, which ultralytics fetches on a connected machine"
        )


def _check(config: GrounderConfig, model: Resolved | None) -> None:
    options = getattr(config, "options", None) or UltralyticsOptions()
    check_checkpoint(model, allow_pickle=options.allow_pickle, table="ground", backend=_NAME)


ULTRALYTICS = Backend(
    make=UltralyticsGrounder,
    check=_check,
    float32_only=True,
    extras=("yolo", "phrases"),
    gpu_bytes=6 << 30,
    options=UltralyticsOptions,
)
