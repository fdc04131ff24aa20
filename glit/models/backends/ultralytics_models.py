"""Load models of ultralytics (AGPL-3.0), an optional package that YOLO's backends alone import."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from glit.errors import WeightsError
from glit.models.weights import Resolved
from glit.recipes.extras import require

_MOST_OF_PICKLE = 64 << 20


def load_yolo(model: Resolved, *, task: str | None, backend: str) -> Any:
    """The model of a checkpoint, which was allowed to be a pickle.

    Raises:
        WeightsError: ultralytics cannot load it.
    """
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.mkdtemp(prefix="glit-yolo-"))
    os.environ["YOLO_AUTOINSTALL"] = "false"
    require("yolo", needed_for=backend)
    from ultralytics import YOLO

    try:
        return YOLO(str(model.path), task=task)
    except (OSError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"model {model.name!r}: cannot be loaded by ultralytics ({error})"
        ) from error


def check_checkpoint(
    model: Resolved | None, *, allow_pickle: bool, table: str, backend: str
) -> None:
    """Refuse a folder, a pickle that was not allowed, and a classifier.

    Raises:
        WeightsError: see above.
    """
    if model is not None and model.path.is_dir():
        raise WeightsError(
            f"model {model.name!r}: {model.path.name} is a folder, but {backend} "
            "loads one ultralytics checkpoint; name a .pt file, or another backend"
        )
    if model is not None and not allow_pickle:
        raise WeightsError(
            f"model {model.name!r}: ultralytics checkpoints are pickles and can run code; "
            f"if you trust the file, set {table}.allow_pickle = true"
        )
    if model is not None and _has_no_boxes(model.path):
        raise WeightsError(
            f"model {model.name!r}: is a classifier, which finds no boxes; name a model that "
            "detects, segments, or finds poses or turned boxes"
        )


def _has_no_boxes(path: Path) -> bool:
    """Return whether a checkpoint holds an image classifier, which finds no boxes.

    The class is looked for in the pickled bytes, so that no code of the file runs.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [each for each in archive.namelist() if each.endswith("data.pkl")]
            with archive.open(name) as file:
                return b"ClassificationModel" in file.read(_MOST_OF_PICKLE)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
