"""The training run: batches in, optimiser steps, metrics and checkpoints out."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glit.backends.device import best_device
from glit.callers_process import kept_random_states, without_bars
from glit.config import as_table
from glit.errors import RunError, UserError
from glit.train.checkpoint import (
    Checkpoints,
    Position,
    checkpoint_to_start_from,
    read_optimizer,
    read_position,
)
from glit.train.config import TrainConfig
from glit.train.gather import num_ranks
from glit.train.gpu_ends import one_line_where_a_gpu_ends
from glit.train.interrupt import Vote, interrupt_flag
from glit.train.log import METRICS, JsonLines, flat_config
from glit.train.model import TrainedModel
from glit.train.objective import Objective
from glit.train.run_file import check_resumable, write_run_file
from glit.train.schedule import learning_rate
from glit.train.setup import Ingredients, mixed_precision, prepare
from glit.train.step import run_step

if TYPE_CHECKING:
    from accelerate import Accelerator

Report = Callable[[dict[str, float | int | str]], None]
"""Called on the first process with every line of metrics."""


_MOST_UNSEEN = 256
"""Losses and gradient norms that nobody has looked at, if lines of metrics are far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended."""

    step: int
    """Optimiser steps done, over all its parts."""
    total_steps: int
    """Optimiser steps of the whole schedule."""
    loss: float
    """Loss of the last batch."""
    checkpoint: Path
    """The last checkpoint."""
    interrupted: bool
    """Whether the user stopped it; ``resume`` goes on."""


def train(
    config: TrainConfig,
    dataset: str,
    run: Path,
    *,
    resume: bool = False,
    report: Report | None = None,
) -> TrainResult:
    """Fine-tune on a dataset; several processes may each call this (torchrun, Ray Train).

    Args:
        config: the run's configuration.
        dataset: folder or address of a finished dataset.
        run: folder for checkpoints and metrics.
        resume: go on from the run's last checkpoint, in the middle of an epoch if need be.
        report: called with every line of metrics.

    Raises:
        UserError: the inputs do not fit together; nothing was written.
        RunError: the loss is no longer finite, or a checkpoint cannot be written; the last good
            checkpoint stays.
    """
    # outside: to put back what a GPU holds fails as well
    with one_line_where_a_gpu_ends(run), kept_random_states(), without_bars():
        return _train(config, dataset, run, resume=resume, report=report)


def _train(
    config: TrainConfig, dataset: str, run: Path, *, resume: bool, report: Report | None
) -> TrainResult:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import (
        DistributedDataParallelKwargs,
        parse_flag_from_env,
        set_seed,
    )

    checkpoint = checkpoint_to_start_from(run, resume=resume)
    AcceleratorState._reset_state()  # or a second run in this process keeps the first's precision
    device = "cpu" if parse_flag_from_env("ACCELERATE_USE_CPU") else best_device()
    config = replace(config, precision=mixed_precision(config.precision, device))
    accelerator = Accelerator(
        mixed_precision=config.precision,
        log_with=list(config.trackers) or None,
        project_dir=str(run),
        # no buffer of CLIP ever changes, so none is sent around before every step
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
    )
    if config.precision == "fp16" and accelerator.scaler is None:
        raise UserError("train.precision = 'fp16': wants a GPU; use 'bf16' or 'no'")
    set_seed(config.seed)
    ingredients = prepare(
        config,
        dataset,
        rank=accelerator.process_index,
        num_ranks=accelerator.num_processes,
        checkpoint=checkpoint,
        pin_memory=accelerator.device.type == "cuda",
    )
    if checkpoint is not None:
        check_resumable(run, config, ingredients.loader.dataset)
    with interrupt_flag() as interrupted:
        runner = _Run(config, run, ingredients, accelerator, checkpoint, report)
        return runner.train(interrupted)


class _Run:
    """The state of one run in one process."""

    def __init__(
        self,
        config: TrainConfig,
        run: Path,
        ingredients: Ingredients,
        accelerator: Accelerator,
        checkpoint: Path | None,
        report: Report | None,
    ) -> None:
        self.config, self.accelerator, self.ingredients = config, accelerator, ingredients
        self.loader, self.objective = ingredients.loader, ingredients.objective
        self.checkpoints = Checkpoints(run)
        self.position = read_position(checkpoint) if checkpoint else Position()
        self.total_steps = total_steps(config, len(self.loader))
        self.report = report
        groups = parameter_groups(ingredients.model, self.objective, config)
        fused = accelerator.device.type == "cuda"  # one kernel; elsewhere other numbers
        optimizer = torch.optim.AdamW(groups, lr=config.lr, fused=fused)
        self.rates = [group["lr"] for group in groups]
        self.model, self.optimizer = accelerator.prepare(ingredients.model, optimizer)
        if config.compile:
            clip = ingredients.model.encoder.clip
            clip.vision_model.compile()
            clip.text_model.encoder.compile(dynamic=True)
        if checkpoint:
            state = read_optimizer(checkpoint)
            for group in state["optimizer"]["param_groups"]:
                group["fused"] = fused  # the run may have begun on another device
            self.optimizer.load_state_dict(state["optimizer"])
            if accelerator.scaler is not None and state["scaler"]:
                accelerator.scaler.load_state_dict(state["scaler"])
        self.log: JsonLines | None = None
        if accelerator.is_main_process:
            self.log = JsonLines(run / METRICS, keep_until_step=self.position.step)
            write_run_file(run, config, self.loader.dataset)
        accelerator.init_trackers("glit", config=flat_config(config))
        self.saved_step = self.position.step if checkpoint else -1
        self.last_loss = math.nan
        self.unseen: list[tuple[str, torch.Tensor, Position]] = []
        self.clock, self.samples, self.steps = time.perf_counter(), 0, 0

    def train(self, interrupted: threading.Event) -> TrainResult:
        """Train until the schedule ends or the user interrupts."""
        self.model.train()
        stopped, vote = False, Vote()
        while not stopped and self.position.step < self.total_steps:
            epoch = self.position.epoch
            for group, next_batch in self._steps_of_epoch():
                self._step(group)
                self.position = replace(
                    self.position, step=self.position.step + 1, batch=next_batch
                )
                stopped = vote(interrupted.is_set())
                if next_batch >= len(self.loader):
                    break  # the end of the epoch saves
                every = self.config.checkpoint_every
                if stopped or (every and self.position.step % every == 0):
                    self._save()
                if stopped or self.position.step >= self.total_steps:
                    break
            if self.position.batch >= len(self.loader):
                self._end_epoch(epoch)
        if self.saved_step != self.position.step:
            self._save()
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return TrainResult(
            step=self.position.step,
            total_steps=self.total_steps,
            loss=self.last_loss,
            checkpoint=self.checkpoints.folder / f"step-{self.position.step:08d}",
            interrupted=stopped,
        )

    def _steps_of_epoch(self) -> Iterator[tuple[list[Any], int]]:
        """Groups of batches that share an optimiser step, and the number of the batch after."""
        position = self.position
        batches = self.loader.epoch(position.epoch, start=position.batch)
        with contextlib.closing(batches):
            group: list[Any] = []
            for number, parts in enumerate(batches, start=position.batch):
                group.append(parts)
                if len(group) == self.config.accumulation_steps or number + 1 == len(self.loader):
                    yield group, number + 1
                    group = []

    def _step(self, group: list[Any]) -> None:
        config, step = self.config, self.position.step
        torch.manual_seed(config.seed * 1_000_003 + step * 1009 + self.accelerator.process_index)
        rate = learning_rate(
            step,
            total_steps=self.total_steps,
            lr=config.lr,
            min_lr=config.min_lr,
            warmup_steps=config.warmup_steps,
        )
        for parameters, highest in zip(self.optimizer.param_groups, self.rates, strict=True):
            parameters["lr"] = rate * (highest / config.lr)
        metrics: dict[str, torch.Tensor] = {}
        for index, parts in enumerate(group):
            on_device = [part.to(self.accelerator.device) for part in parts]
            metrics = run_step(
                on_device,
                model=self.model,
                objective=self.objective,
                accelerator=self.accelerator,
                scale=1 / len(group),
                last=index == len(group) - 1,
            )
            self.unseen.append(("loss", metrics["loss"], self.position))
            self.samples += sum(part.num_valid for part in parts) * num_ranks()
        metrics["grad_norm"] = self._clip_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._limit_logit_scale()
        self.steps += 1
        if (step + 1) % config.log_every == 0 or step + 1 == self.total_steps:
            self._log(metrics, rate)
        elif len(self.unseen) >= _MOST_UNSEEN:
            self._look()

    def _clip_gradients(self) -> torch.Tensor:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if self.config.max_grad_norm > 0:
            norm = self.accelerator.clip_grad_norm_(parameters, self.config.max_grad_norm)
            assert isinstance(norm, torch.Tensor)
        else:
            self.accelerator.unscale_gradients()  # fp16's are multiplied by its loss scale
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.config.precision != "fp16":  # fp16's loss scaler skips overflowed steps itself
            self.unseen.append(("gradient", norm, self.position))
        return norm

    def _look(self) -> None:
        """See the losses and gradient norms since the last look, in one copy from the device.

        Python would wait for the device at every step otherwise. Steps may be taken meanwhile with
        numbers that are not finite; they are never logged or saved, for both look first.
        """
        unseen, self.unseen = self.unseen, []
        if not unseen:
            return
        values = numbers([value for _, value, _ in unseen])
        for (what, _, position), value in zip(unseen, values, strict=True):
            self._check_finite(what, value, position)
            if what == "loss":
                self.last_loss = value
                total = self.position.loss_sum + value
                self.position = replace(self.position, loss_sum=total)

    def _check_finite(self, what: str, value: float, position: Position) -> None:
        if math.isfinite(value):
            return
        last = self.checkpoints.last()
        kept = f"the last good checkpoint is {last}" if last else "no checkpoint was written yet"
        raise RunError(
            f"training stopped: the {what} became {value} at step {position.step + 1} "
            f"(epoch {position.epoch + 1}, batch {position.batch + 1} of {len(self.loader)}); "
            f"{kept}: lower train.lr or set train.max_grad_norm, then go on with --resume"
        )

    def _limit_logit_scale(self) -> None:
        limit = math.log(self.config.max_logit_scale)
        with torch.no_grad():
            self.ingredients.model.encoder.clip.logit_scale.clamp_(max=limit)
            if self.ingredients.model.module is not None:
                self.ingredients.model.module.after_step(self.config.max_logit_scale)

    def _end_epoch(self, epoch: int) -> None:
        """Move to the next epoch; its mean loss decides which checkpoint is the best."""
        self._look()
        mean_loss = self.position.loss_sum / len(self.loader)
        best = self.position.best
        is_best = best is None or -mean_loss > best
        self.position = replace(
            self.position,
            epoch=epoch + 1,
            batch=0,
            loss_sum=0.0,
            best=-mean_loss if is_best else best,
        )
        self._save(is_best=is_best)

    def _save(self, *, is_best: bool = False) -> None:
        self._look()
        self.accelerator.wait_for_everyone()
        self.saved_step = self.position.step
        if not self.accelerator.is_main_process:
            return
        scaler = self.accelerator.scaler
        self.checkpoints.save(
            self.position,
            self.ingredients.model.encoder.clip,
            self.ingredients.model.module,
            objective={"objective": self.config.objective, **as_table(self.objective)},
            start=self.ingredients.start,
            preprocessing=self.ingredients.preprocessing,
            optimizer=self.optimizer.state_dict(),
            scaler=scaler.state_dict() if scaler is not None else None,
            is_best=is_best,
        )

    def _log(self, metrics: dict[str, torch.Tensor], rate: float) -> None:
        self._look()
        values = numbers(list(metrics.values()))
        now = time.perf_counter()
        line: dict[str, float | int | str] = {
            "step": self.position.step + 1,
            "total_steps": self.total_steps,
            "epoch": self.position.epoch + 1,
            "lr": rate,
            **dict(zip(metrics, values, strict=True)),
            "samples_per_s": self.samples / max(now - self.clock, 1e-9),
            "steps_per_s": self.steps / max(now - self.clock, 1e-9),
        }
        self.clock, self.samples, self.steps = now, 0, 0
        if self.log is not None:
            self.log.write(line)
            if self.report is not None:
                self.report(line)
        self.accelerator.log(
            {k: v for k, v in line.items() if k != "step"}, step=self.position.step + 1
        )


def numbers(scalars: Sequence[torch.Tensor]) -> list[float]:
    """The values of one or more tensors of one element each, in one copy from the first one's
    device."""
    device = scalars[0].device
    return torch.stack([each.detach().float().reshape(()).to(device) for each in scalars]).tolist()


def total_steps(config: TrainConfig, num_batches: int) -> int:
    """Optimiser steps of a schedule."""
    per_epoch = -(-num_batches // config.accumulation_steps)
    steps = per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps


def parameter_groups(
    model: TrainedModel, objective: Objective, config: TrainConfig
) -> list[dict[str, Any]]:
    """Matrices and embeddings with weight decay; gains, biases and the logit scale without.

    What the objective brings has groups of its own, at its own learning rate.
    """
    parts: list[tuple[nn.Module, float]] = [(model.encoder, config.lr)]
    if model.module is not None:
        parts.append((model.module, objective.module_lr or config.lr))
    groups = []
    for part, rate in parts:
        trained = [p for p in part.parameters() if p.requires_grad]
        for matrices, decay in ((True, config.weight_decay), (False, 0.0)):
            chosen = [p for p in trained if (p.ndim >= 2) is matrices]
            groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups
