"""Find a CLIP by name: a checkpoint of a run of ``glit train``, a folder, or a published model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glit.errors import WeightsError
from glit.models.clip.position import read_position
from glit.models.files import folder_of_file
from glit.models.weights import resolve

OBJECTIVE = "objective"
"""Folder of a checkpoint with the parameters of the objective's own."""
UNMIXED = "unmixed"
"""Key of that folder's config.json: whether the objective trains patch tokens that attend to
themselves alone."""
OWN_ENCODERS = "own_encoders"
"""Key of the same file: whether the objective's encoders are its own, and the CLIPModel in the
checkpoint is the one that training started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunModel:
    """The model folder of a run, and the name of its checkpoint."""

    folder: Path
    checkpoint: str
    """``best, step 120 (the last is step 190)``; empty for a folder that is no run."""


def find_model(name: str, checkpoint: Literal["best", "last"] = "best") -> RunModel:
    """Find a model by name: a checkpoint of a run, a folder, or what the name resolves to.

    Raises:
        WeightsError: there is none, or its files are incomplete.
    """
    found = model_of_run(Path(name), checkpoint)
    if found.folder.is_file():
        raise WeightsError(
            f"model {name!r}: a single file, but a folder with config.json is wanted; "
            f"{folder_of_file(found.folder)}"
        )
    here = (found.folder / "config.json").is_file()
    return RunModel(
        folder=resolve(str(found.folder) if here else name).path, checkpoint=found.checkpoint
    )


def model_of_run(path: Path, wanted: Literal["best", "last"] = "best") -> RunModel:
    """Resolve a path to a model folder: a run's checkpoint, or the folder itself.

    A run that ended within its first epoch has no best checkpoint yet; the last stands in.
    """
    names = ("best", "last") if wanted == "best" else ("last",)
    for name in names:
        if (path / name / "config.json").is_file():
            folder = (path / name).resolve()
            step, last = read_position(folder).step, read_position((path / "last").resolve()).step
            other = f" (the last is step {last})" if last != step else ""
            return RunModel(folder=folder, checkpoint=f"{name}, step {step}{other}")
    return RunModel(folder=path, checkpoint="")


def read_objective(checkpoint: Path) -> dict[str, Any]:
    """Read the keys of the objective a checkpoint was trained with, its name as ``objective``.

    Raises:
        WeightsError: the folder holds no parameters of an objective's own.
    """
    found = _said_of_objective(checkpoint)
    return {key: value for key, value in found.items() if key not in (UNMIXED, OWN_ENCODERS)}


def trains_unmixed(folder: Path) -> bool:
    """Return whether the checkpoint's objective trained patches that attend to themselves alone."""
    return _says(folder, UNMIXED)


def has_own_encoders(folder: Path) -> bool:
    """Return whether a checkpoint holds encoders of its objective's own."""
    return _says(folder, OWN_ENCODERS)


def refuse_own_encoders(folder: Path, name: str) -> None:
    """Refuse a checkpoint whose CLIPModel is not the trained model.

    Raises:
        WeightsError: see above.
    """
    if has_own_encoders(folder):
        trained = read_objective(folder)["objective"]
        raise WeightsError(
            f"{name}: a run of {trained!r}, whose encoders are its own; the CLIPModel beside them "
            "is the one it started from. Take that one here; glit eval and glit train --resume "
            "take the run"
        )


def _says(folder: Path, key: str) -> bool:
    """Return whether a checkpoint's ``objective/config.json`` says that it has a property."""
    if not (folder / OBJECTIVE / "config.json").is_file():
        return False
    return bool(_said_of_objective(folder).get(key))


def _said_of_objective(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / OBJECTIVE / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found["objective"], str)
        return found
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise WeightsError(
            f"{path}: does not say which objective the checkpoint was trained with "
            f"({type(error).__name__}); give a run of an objective that has parameters of its own"
        ) from error
