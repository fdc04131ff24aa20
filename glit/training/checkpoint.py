"""Write and load checkpoints: a ``CLIPModel`` folder and the state for resuming.

    RUN/checkpoints/step-00000120/   config.json, model.safetensors, tokenizer, preprocessor,
                                     objective/ (if it has parameters: config.json with its keys,
                                     model.safetensors),
                                     adapter/ (with train.lora_rank: what the model has merged),
                                     trainer/optimizer.pt, trainer/state.json, and where the model
                                     is an average trainer/weights.safetensors
    RUN/last, RUN/best               links to the two that are kept, beside those of keep_every

A folder is written under a temporary name and renamed, and renamed before it is removed, so one
that exists is complete. The links follow from the newest one: a resumed run creates them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glit.errors import RunError, WeightsError, first_line
from glit.models.clip.folder import disk_errors, write_json, write_model
from glit.models.clip.image_processor import Preprocessing
from glit.models.clip.position import Position
from glit.models.clip.runs import OBJECTIVE
from glit.training.average import RAW
from glit.training.lora import ADAPTER, has_adapters, merged, write_adapters

if TYPE_CHECKING:
    from transformers import CLIPModel

_STAYS = "trainer/stays"
"""An empty file in checkpoints that are not removed when newer ones come."""
_WRITING, _REPLACED, _REMOVED = ".writing-", ".replaced-", ".removed-"
"""Prefixes of folders that are no checkpoints yet, or no more."""


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def last(self) -> Path | None:
        """The newest complete checkpoint, None when there is none."""
        found = sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []
        return found[-1] if found else None

    def put_back(self) -> None:
        """Undo a replacement that a kill interrupted; every process may call it."""
        for folder in self.folder.glob(f"{_REPLACED}*"):
            target = self._named(int(folder.name.removeprefix(_REPLACED)))
            if not target.exists():
                with contextlib.suppress(FileNotFoundError):  # another process was first
                    os.replace(folder, target)

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
        stays: bool = False,
        raw: dict[str, torch.Tensor] | None = None,
    ) -> Path:
        """Write a checkpoint, move the links, remove those that no link names; not if it ``stays``.

        ``objective`` are the keys of the objective, its name among them; ``raw`` the weights that
        training goes on with, where the model's are an average.

        Raises RunError when it cannot be written; the checkpoints before it stay.
        """
        target = self._named(position.step)
        temporary = self.folder / f"{_WRITING}{position.step:08d}"
        try:
            with disk_errors():
                shutil.rmtree(temporary, ignore_errors=True)
                plain = merged(model) if has_adapters(model) else model
                write_model(temporary, plain, start=start, preprocessing=preprocessing)
                if has_adapters(model):
                    write_adapters(temporary / ADAPTER, model)
                if module is not None:
                    write_module(temporary, module, objective)
                (temporary / "trainer").mkdir()
                _write_optimizer(
                    temporary / "trainer" / "optimizer.pt",
                    {"optimizer": optimizer, "scaler": scaler},
                )
                write_json(temporary / "trainer" / "state.json", dataclasses.asdict(position))
                if raw is not None:
                    _write_weights(temporary / RAW, raw)
                if stays:
                    (temporary / _STAYS).touch()
                if target.exists():  # measured only now, and written again with its score
                    os.replace(target, self.folder / f"{_REPLACED}{position.step:08d}")
                os.replace(temporary, target)
                self._link(position)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RunError(
                f"{target}: the checkpoint cannot be written ({error.strerror or error}); free "
                "some space or choose another run folder, then go on with --resume"
            ) from error
        self._prune()
        return target

    def mend(self, position: Position) -> None:
        """Create the links that a killed run did not make, and remove its leftovers.

        Args:
            position: of the newest checkpoint.

        Raises:
            RunError: nothing can be written there.
        """
        try:
            self._link(position)
        except OSError as error:
            raise RunError(
                f"{self.run}: the links to the checkpoints cannot be written "
                f"({error.strerror or error}); see that the folder can be written, then go on "
                "with --resume"
            ) from error
        self._prune()

    def _named(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _link(self, position: Position) -> None:
        """``last`` is the checkpoint of a position, ``best`` the one that it names."""
        named = {"last": position.step, "best": position.best_step}
        for name, step in named.items():
            if step is not None and self._named(step).is_dir():
                fresh = self.run / f".{name}.link"
                fresh.unlink(missing_ok=True)
                folder = self._named(step).relative_to(self.run)
                fresh.symlink_to(folder, target_is_directory=True)
                os.replace(fresh, self.run / name)

    def _prune(self) -> None:
        """Remove what no link names; by another name first, or a kill would leave half of it."""
        kept = {(self.run / name).resolve() for name in ("last", "best")}
        for folder in self.folder.glob("step-*"):
            if folder.resolve() not in kept and not (folder / _STAYS).exists():
                with contextlib.suppress(OSError):
                    os.replace(folder, folder.with_name(f"{_REMOVED}{folder.name}"))
        for mark in (_WRITING, _REPLACED, _REMOVED):
            for folder in self.folder.glob(f"{mark}*"):
                shutil.rmtree(folder, ignore_errors=True)


def write_module(checkpoint: Path, module: nn.Module, objective: dict[str, Any]) -> None:
    """Save an objective's own parameters beside the model, with its keys."""
    (checkpoint / OBJECTIVE).mkdir()
    write_json(checkpoint / OBJECTIVE / "config.json", objective)
    _write_weights(checkpoint / OBJECTIVE / "model.safetensors", module.state_dict())


def _write_optimizer(path: Path, state: dict[str, Any]) -> None:
    """Save an optimiser's state.

    Raises:
        OSError: the disk takes no more, which torch tells as a RuntimeError of its writer.
    """
    with path.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if "PytorchStreamWriter" not in str(error) and "unexpected pos" not in str(error):
                raise
            raise OSError(errno.EIO, first_line(error)) from error


def _write_weights(path: Path, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    contiguous = {name: value.contiguous() for name, value in weights.items()}
    save_file(contiguous, path, metadata={"format": "pt"})


def read_module(checkpoint: Path, module: nn.Module) -> None:
    """Load an objective's own parameters, in place.

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
