"""Checkpoints: a ``CLIPModel.from_pretrained`` folder with its processor, and what resuming needs.

    RUN/checkpoints/step-00000120/   config.json, model.safetensors, tokenizer, preprocessor,
                                     trainer/optimizer.pt, trainer/state.json
    RUN/last, RUN/best               links to the two that are kept

A folder is written under a temporary name and renamed, so one that exists is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from glit.errors import InputError, RunError
from glit.train.config import ImageFit

if TYPE_CHECKING:
    from transformers import CLIPModel

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run is: the next batch to be trained on, and how it has done so far."""

    step: int = 0
    """Optimiser steps done."""

    epoch: int = 0
    """Epoch of the next batch, from 0."""

    batch: int = 0
    """Number of the next batch in its epoch."""

    best: float | None = None
    """Score of the best checkpoint so far (higher is better); None before the first."""

    loss_sum: float = 0.0
    """Losses of this epoch's batches so far, summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """How a model wants its images, as its preprocessor_config.json says."""

    mean: tuple[float, float, float] = CLIP_MEAN
    """Per channel, on a scale of 0 to 1."""

    std: tuple[float, float, float] = CLIP_STD
    """Per channel, on a scale of 0 to 1."""

    fit: ImageFit = "centre-crop"
    """How the image becomes the model's square."""


def read_preprocessing(folder: Path) -> Preprocessing:
    """A model folder's preprocessing; CLIP's own values where it does not say."""
    alone, inside = folder / "preprocessor_config.json", folder / "processor_config.json"
    values: dict[str, Any] = {}
    if alone.is_file():
        values = json.loads(alone.read_text(encoding="utf-8"))
    elif inside.is_file():  # where newer transformers keep it
        values = json.loads(inside.read_text(encoding="utf-8")).get("image_processor") or {}
    fit: ImageFit = "centre-crop" if values.get("do_center_crop", True) else "resize"
    return Preprocessing(
        mean=_three(values.get("image_mean") or CLIP_MEAN),
        std=_three(values.get("image_std") or CLIP_STD),
        fit=fit,
    )


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue


def write_model(
    folder: Path, model: CLIPModel, *, start: Path, preprocessing: Preprocessing
) -> None:
    """Write a folder that ``CLIPModel`` and ``CLIPProcessor`` load.

    Args:
        folder: where; made if need be.
        model: the weights.
        start: the folder training started from, whose tokenizer is copied as it is.
        preprocessing: how images were fitted in training, so that users fit them the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (start / name).is_file():
            shutil.copyfile(start / name, folder / name)
    window = model.text_model.embeddings.position_embedding.num_embeddings
    tokenizer_config = folder / "tokenizer_config.json"
    if tokenizer_config.is_file():
        values = json.loads(tokenizer_config.read_text(encoding="utf-8"))
        _write_json(tokenizer_config, {**values, "model_max_length": window})
    _write_json(folder / "preprocessor_config.json", _preprocessor_config(model, preprocessing))


def _preprocessor_config(model: CLIPModel, preprocessing: Preprocessing) -> dict[str, Any]:
    side = model.vision_model.embeddings.image_size
    cropped = preprocessing.fit == "centre-crop"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "processor_class": "CLIPProcessor",
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


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def last(self) -> Path | None:
        """The newest complete checkpoint, None when there is none."""
        found = sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []
        return found[-1] if found else None

    def save(
        self,
        position: Position,
        model: CLIPModel,
        *,
        start: Path,
        preprocessing: Preprocessing,
        optimizer: dict[str, Any],
        scaler: dict[str, Any] | None,
        is_best: bool,
    ) -> Path:
        """Write a checkpoint, move the links, remove those that no link names.

        Raises RunError when it cannot be written; the checkpoints before it stay.
        """
        target = self.folder / f"step-{position.step:08d}"
        temporary = self.folder / f".writing-{position.step:08d}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            write_model(temporary, model, start=start, preprocessing=preprocessing)
            (temporary / "trainer").mkdir()
            torch.save(
                {"optimizer": optimizer, "scaler": scaler}, temporary / "trainer" / "optimizer.pt"
            )
            _write_json(temporary / "trainer" / "state.json", dataclasses.asdict(position))
            shutil.rmtree(target, ignore_errors=True)
            os.replace(temporary, target)
            self._link("last", target)
            if is_best:
                self._link("best", target)
        except OSError as error:
            raise RunError(
                f"{target}: the checkpoint cannot be written ({error.strerror or error}); free "
                "some space or choose another run folder, then go on with --resume"
            ) from error
        self._prune()
        return target

    def _link(self, name: str, target: Path) -> None:
        fresh = self.run / f".{name}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.relative_to(self.run), target_is_directory=True)
        os.replace(fresh, self.run / name)

    def _prune(self) -> None:
        kept = {(self.run / name).resolve() for name in ("last", "best")}
        for folder in self.folder.glob("step-*"):
            if folder.resolve() not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def checkpoint_to_start_from(run: Path, *, resume: bool) -> Path | None:
    """The checkpoint to resume from, None for a fresh run.

    Raises InputError when there is none to resume, or when a fresh run would mix with an old one.
    """
    last = Checkpoints(run).last()
    if resume and last is None:
        raise InputError(f"{run}: no checkpoint to resume from; start the run without --resume")
    if not resume and last is not None:
        raise InputError(
            f"{run}: holds a run already (last checkpoint {last.name}); go on with --resume, or "
            "choose another folder with -o"
        )
    return last if resume else None


def read_position(checkpoint: Path) -> Position:
    """Where the run of a checkpoint was.

    Raises InputError for a folder that is not one of our checkpoints.
    """
    path = checkpoint / "trainer" / "state.json"
    try:
        return Position(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{checkpoint}: no usable trainer/state.json ({error}), so the run cannot be resumed "
            "from here; start a new run folder"
        ) from error


def read_optimizer(checkpoint: Path) -> dict[str, Any]:
    """Optimiser and loss scaler state of a checkpoint."""
    path = checkpoint / "trainer" / "optimizer.pt"
    return torch.load(path, map_location="cpu", weights_only=True)


def model_folder(path: Path) -> Path:
    """The model a path means: a run's best checkpoint, else its last, else the folder itself."""
    for name in ("best", "last"):
        if (path / name / "config.json").is_file():
            return (path / name).resolve()
    return path


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
