"""Checkpoints: a ``CLIPModel.from_pretrained`` folder with its processor, and what resuming needs.

    RUN/checkpoints/step-00000120/   config.json, model.safetensors, tokenizer, preprocessor,
                                     objective/ (if it has parameters: config.json with its keys,
                                     model.safetensors),
                                     adapter/ (with train.lora_rank: what the model has merged),
                                     trainer/optimizer.pt, trainer/state.json, and where the model
                                     is an average trainer/weights.safetensors
    RUN/last, RUN/best               links to the two that are kept, beside those of keep_every

A folder is written under a temporary name and renamed, so one that exists is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from glit.clip.folder import Preprocessing, write_json, write_model
from glit.errors import InputError, RunError, WeightsError, first_line
from glit.train.average import RAW
from glit.train.lora import ADAPTER, has_adapters, merged, write_adapters

if TYPE_CHECKING:
    from transformers import CLIPModel


OBJECTIVE = "objective"
"""Folder of a checkpoint with the parameters of the objective's own."""
_STAYS = "trainer/stays"
"""An empty file in checkpoints that are not removed when newer ones come."""


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
        module: nn.Module | None,
        *,
        objective: dict[str, Any],
        start: Path,
        preprocessing: Preprocessing,
        optimizer: dict[str, Any],
        scaler: dict[str, Any] | None,
        is_best: bool,
        stays: bool = False,
        raw: dict[str, torch.Tensor] | None = None,
    ) -> Path:
        """Write a checkpoint, move the links, remove those that no link names; not if it ``stays``.

        ``objective`` are the keys of the objective, its name among them; ``raw`` the weights that
        training goes on with, where the model's are an average.

        Raises RunError when it cannot be written; the checkpoints before it stay.
        """
        target = self.folder / f"step-{position.step:08d}"
        temporary = self.folder / f".writing-{position.step:08d}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            plain = merged(model) if has_adapters(model) else model
            write_model(temporary, plain, start=start, preprocessing=preprocessing)
            if has_adapters(model):
                write_adapters(temporary / ADAPTER, model)
            if module is not None:
                write_module(temporary, module, objective)
            (temporary / "trainer").mkdir()
            torch.save(
                {"optimizer": optimizer, "scaler": scaler}, temporary / "trainer" / "optimizer.pt"
            )
            write_json(temporary / "trainer" / "state.json", dataclasses.asdict(position))
            if raw is not None:
                _write_weights(temporary / RAW, raw)
            if stays:
                (temporary / _STAYS).touch()
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
            if folder.resolve() not in kept and not (folder / _STAYS).exists():
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
    """Optimiser and loss scaler state of a checkpoint.

    Raises InputError for a file that is missing or damaged.
    """
    path = checkpoint / "trainer" / "optimizer.pt"
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path}: missing or damaged ({type(error).__name__}), so the run cannot be resumed "
            "from here; start a new run folder"
        ) from error


def write_module(checkpoint: Path, module: nn.Module, objective: dict[str, Any]) -> None:
    """Save the parameters of an objective's own beside the model, and its keys."""
    (checkpoint / OBJECTIVE).mkdir()
    write_json(checkpoint / OBJECTIVE / "config.json", objective)
    _write_weights(checkpoint / OBJECTIVE / "model.safetensors", module.state_dict())


def _write_weights(path: Path, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    contiguous = {name: value.contiguous() for name, value in weights.items()}
    save_file(contiguous, path, metadata={"format": "pt"})


def read_objective(checkpoint: Path) -> dict[str, Any]:
    """The keys of the objective a checkpoint was trained with, its name as ``objective``.

    Raises:
        WeightsError: the folder holds no parameters of an objective's own.
    """
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


def read_module(checkpoint: Path, module: nn.Module) -> None:
    """Load the parameters of an objective's own, in place.

    Raises:
        WeightsError: the checkpoint holds none, or those of another objective.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = checkpoint / OBJECTIVE / "model.safetensors"
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise WeightsError(
            f"{path}: not the parameters of this run's objective ({first_line(error)}); was "
            "the checkpoint written with another objective?"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunModel:
    """A model of a run, and which of its checkpoints it is."""

    folder: Path
    checkpoint: str
    """``best, step 120 (the last is step 190)``; empty for a folder that is no run."""


def model_of_run(path: Path, wanted: Literal["best", "last"] = "best") -> RunModel:
    """The model a path means: a checkpoint of a run, or the folder itself.

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
