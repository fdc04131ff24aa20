"""The training loop: batches, optimiser steps, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from glit.models.clip.position import Position, read_position
from glit.models.clip.runs import OWN_ENCODERS, UNMIXED
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.recipes.config import as_table
from glit.runtime.cpu_threads import CpuThreads
from glit.runtime.process_state import kept_random_states, without_bars
from glit.runtime.ranks import rank
from glit.storage.folder_lock import folder_lock
from glit.training.accelerated import open_accelerator
from glit.training.average import Average, read_raw_weights
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig
from glit.training.deferred_scalars import Unseen
from glit.training.gather import num_ranks
from glit.training.interrupt import Interrupt, Vote, WaitForFirst, interrupt_flag
from glit.training.log import METRICS, VALIDATION, JsonLines, flat_config, numbers
from glit.training.optim import learning_rate, make_optimizer, total_steps
from glit.training.resume import check_position, checkpoint_to_start_from, restore_optimizer
from glit.training.run_ends import one_line_where_a_run_ends
from glit.training.run_file import check_resumable, threads_of, write_run_file
from glit.training.setup import Ingredients, Measure, OpenMeasure, prepare
from glit.training.step import run_step

if TYPE_CHECKING:
    from accelerate import Accelerator

Report = Callable[[dict[str, float | int | str]], None]
"""Called on the first process with every line of metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The result of a run."""

    step: int
    """Optimiser steps done, over all its parts."""
    total_steps: int
    """Optimiser steps of the whole schedule."""
    loss: float
    """Loss of the last batch."""
    checkpoint: Path
    """The last checkpoint."""
    interrupted: bool
    """True if the user stopped it; ``resume`` goes on."""
    signum: int = 0
    """Number of the signal that stopped it; 0: none, or another process got it."""


def train(
    config: TrainConfig,
    dataset: str,
    run: Path,
    *,
    resume: bool = False,
    report: Report | None = None,
    open_measure: OpenMeasure | None = None,
) -> TrainResult:
    """Fine-tune on a dataset; several processes may each call this (torchrun).

    Args:
        config: the run's configuration.
        dataset: folder or address of a finished dataset.
        run: folder for checkpoints and metrics.
        resume: go on from the run's last checkpoint, in the middle of an epoch if need be.
        report: called with every line of metrics.
        open_measure: opens what ``train.validation`` names, see :data:`OpenMeasure`.

    Raises:
        UserError: the inputs do not fit together; nothing was written.
        RunError: the loss is no longer finite, or a checkpoint cannot be written; the last good
            checkpoint stays.
    """
    # one process of several holds the folder for all of them
    held = folder_lock(run) if rank() == 0 else contextlib.nullcontext()
    # outside: to put back what a GPU holds fails as well
    with held, one_line_where_a_run_ends(run), kept_random_states(), without_bars():
        checkpoint = checkpoint_to_start_from(run, resume=resume)
        accelerator, config = open_accelerator(config, run)
        with CpuThreads(accelerator.device.type) as threads, no_tf32_convolutions():
            ingredients = prepare(
                config,
                dataset,
                rank=accelerator.process_index,
                num_ranks=accelerator.num_processes,
                checkpoint=checkpoint,
                pin_memory=accelerator.device.type == "cuda",
            )
            if checkpoint is not None:
                check_resumable(run, config, ingredients.loader.dataset, start=ingredients.start)
            measure = None
            if config.is_measured:
                assert open_measure is not None, "train.validation wants somebody who measures"
                if accelerator.is_main_process:
                    measure = open_measure(config, ingredients)
            num_threads = threads.fit(None if checkpoint is None else threads_of(run))
            with interrupt_flag() as interrupted:
                runner = _Run(config, run, ingredients, accelerator, checkpoint, num_threads)
                runner.report, runner.measure = report, measure
                with contextlib.closing(ingredients.loader):
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
        num_threads: int,
    ) -> None:
        self.config, self.accelerator, self.ingredients = config, accelerator, ingredients
        self.loader, self.objective = ingredients.loader, ingredients.objective
        self.checkpoints = Checkpoints(run)
        self.position = read_position(checkpoint) if checkpoint else Position(step=0)
        self.total_steps = total_steps(config, len(self.loader))
        self.report: Report | None = None
        self.measure: Measure | None = None
        self.wait_for_first = WaitForFirst() if config.is_measured else None
        fused = accelerator.device.type == "cuda"
        optimizer = make_optimizer(ingredients.model, self.objective, config, fused=fused)
        self.rates = [group["lr"] for group in optimizer.param_groups]
        with warnings.catch_warnings():
            # torch has another name for what accelerate calls so
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            self.model, self.optimizer = accelerator.prepare(ingredients.model, optimizer)
        if config.compile:
            clip = ingredients.model.encoder.clip
            clip.vision_model.compile()
            clip.text_model.encoder.compile(dynamic=True)
        if checkpoint:
            check_position(checkpoint, self.position, config, num_batches=len(self.loader))
            restore_optimizer(
                checkpoint, self.optimizer, accelerator.scaler,
                step=self.position.step, fused=fused,
            )  # fmt: skip
        self.average: Average | None = None
        if config.ema_decay:
            if accelerator.is_main_process:  # it alone saves and measures
                self.average = Average(ingredients.model, config.ema_decay)
            if checkpoint:
                read_raw_weights(checkpoint, ingredients.model)
        self.log: JsonLines | None = None
        if accelerator.is_main_process:
            if checkpoint:
                self.checkpoints.mend(self.position)
            kept = self.position.step if checkpoint else -1  # a fresh run measures its start anew
            self.log = JsonLines(run / METRICS, keep_until_step=kept)
            write_run_file(
                run, config, self.loader.dataset, start=ingredients.start,
                model=ingredients.model, num_threads=num_threads,
            )  # fmt: skip
        accelerator.init_trackers("glit", config=flat_config(config))
        self.saved_step = self.position.step if checkpoint else -1
        self.unseen = Unseen(run, len(self.loader))
        self.clock, self.samples, self.steps = time.perf_counter(), 0, 0

    def train(self, interrupted: Interrupt) -> TrainResult:
        """Train until the schedule ends or the user interrupts."""
        self.model.train()
        stopped, vote = False, Vote()
        self._catch_up()
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
                if stopped or self._is_due():
                    self._save(measured=not stopped)
                if stopped or self.position.step >= self.total_steps:
                    break
            if self.position.batch >= len(self.loader):
                self._end_epoch(epoch, stopped)
        if self.saved_step != self.position.step:
            self._save()
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return TrainResult(
            step=self.position.step,
            total_steps=self.total_steps,
            loss=self._last_loss(),
            checkpoint=self.checkpoints.folder / f"step-{self.position.step:08d}",
            interrupted=stopped,
            signum=interrupted.signum if stopped else 0,
        )

    def _last_loss(self) -> float:
        """The loss of the last batch; of a run that had ended before, the one in its log."""
        if math.isfinite(self.unseen.last_loss) or self.log is None:
            return self.unseen.last_loss
        return self.log.last_loss

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
        rate = learning_rate(config, step, total_steps=self.total_steps)
        for parameters, highest in zip(self.optimizer.param_groups, self.rates, strict=True):
            parameters["lr"] = rate * (highest / config.lr)
        metrics: dict[str, torch.Tensor] = {}
        sums: dict[str, torch.Tensor] = {}
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
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0) + torch.as_tensor(value).detach()
            self.unseen.add("loss", metrics["loss"], self.position)
            self.samples += sum(part.num_valid for part in parts) * num_ranks()
        metrics = {name: value / len(group) for name, value in sums.items()}
        metrics["grad_norm"] = self._clip_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._limit_logit_scale()
        if self.average is not None:
            self.average.update()
        self.steps += 1
        if (step + 1) % config.log_every == 0 or step + 1 == self.total_steps:
            self._log(metrics, rate)
        elif self.unseen.too_many:
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
            self.unseen.add("gradient", norm, self.position)
        return norm

    def _look(self) -> None:
        self.position = self.unseen.look(self.position)

    def _limit_logit_scale(self) -> None:
        limit, model = self.config.max_logit_scale, self.ingredients.model
        model.encoder.limit_logit_scale(limit)
        if model.module is not None:
            with torch.no_grad():
                model.module.after_step(limit)

    def _is_due(self) -> bool:
        """Return whether the schedule, and no interruption, has a checkpoint here."""
        every, step = self.config.checkpoint_every, self.position.step
        due = bool(every) and step % every == 0
        return due or self.position.batch == 0 or step >= self.total_steps

    def _stays(self) -> bool:
        """Return whether this checkpoint is one of those that ``keep_every`` counts."""
        config, position = self.config, self.position
        every = config.checkpoint_every * config.keep_every
        if every:
            return position.step % every == 0
        ends_epoch = position.batch == 0 and not config.checkpoint_every
        return bool(config.keep_every) and ends_epoch and position.epoch % config.keep_every == 0

    def _end_epoch(self, epoch: int, stopped: bool) -> None:
        """Move to the next epoch; without validation its mean loss decides which checkpoint is the
        best."""
        self._look()
        mean_loss = self.position.loss_sum / len(self.loader)
        self.position = replace(self.position, epoch=epoch + 1, batch=0, loss_sum=0.0)
        if not self.config.is_measured:
            self._score(-mean_loss)
        self._save(measured=not stopped)

    def _score(self, score: float) -> None:
        """Remember the checkpoint to come as the best, unless one has as high a score."""
        best = self.position.best
        if best is None or score > best:
            self.position = replace(self.position, best=score, best_step=self.position.step)

    def _catch_up(self) -> None:
        """Measure the start of a run, or a checkpoint that was written in a hurry."""
        if self.config.is_measured and self._is_due():
            if self.position.step == 0:
                self._validate()
            else:
                self._save()

    def _validate(self) -> None:
        """Measure the model as it is, unless its figures are known.

        The first process measures and the others wait.
        """
        position = self.position
        if self.log is not None and position.step not in self.log.validated:
            assert self.measure is not None
            began = time.perf_counter()
            with self._as_saved():
                found = self.measure()
            self.clock += time.perf_counter() - began  # rates are those of learning
            if position.step > 0:
                self._score(found[VALIDATION])
            epoch = position.epoch + (position.batch > 0)
            self._write(position.step, epoch, found)
        assert self.wait_for_first is not None
        self.wait_for_first()

    def _save(self, *, measured: bool = True) -> None:
        """Write a checkpoint, measured before where there is validation and time for it."""
        self._look()
        if self.config.is_measured and measured:
            self._validate()
        self.accelerator.wait_for_everyone()
        self.saved_step = self.position.step
        if self.accelerator.is_main_process:
            began = time.perf_counter()
            self._write_checkpoint()
            self.clock += time.perf_counter() - began

    def _write_checkpoint(self) -> None:
        scaler = self.accelerator.scaler
        with self._as_saved() as raw:
            self.checkpoints.save(
                self.position,
                self.ingredients.model.encoder.clip,
                self.ingredients.model.module,
                objective={
                    "objective": self.config.objective,
                    UNMIXED: self.objective.needs.unmixed,
                    OWN_ENCODERS: self.objective.own_encoders,
                    **as_table(self.objective),
                },
                start=self.ingredients.start,
                preprocessing=self.ingredients.preprocessing,
                optimizer=self.optimizer.state_dict(),
                scaler=scaler.state_dict() if scaler is not None else None,
                stays=self._stays(),
                raw=raw,
            )

    def _as_saved(self) -> contextlib.AbstractContextManager[dict[str, torch.Tensor] | None]:
        """The model as checkpoints hold it; gives the weights it learns with where they differ."""
        return self.average.in_place() if self.average else contextlib.nullcontext()

    def _log(self, metrics: dict[str, torch.Tensor], rate: float) -> None:
        self._look()
        values = numbers(list(metrics.values()))
        now = time.perf_counter()
        seconds = max(now - self.clock, 1e-9)
        rates = {"samples_per_s": self.samples / seconds, "steps_per_s": self.steps / seconds}
        self.clock, self.samples, self.steps = now, 0, 0
        learned = {"lr": rate, **dict(zip(metrics, values, strict=True)), **rates}
        self._write(self.position.step + 1, self.position.epoch + 1, learned)

    def _write(self, step: int, epoch: int, found: Mapping[str, float]) -> None:
        values = {"total_steps": self.total_steps, "epoch": epoch, **found}
        if self.log is not None:
            line = {"step": step, **values}
            self.log.write(line)
            if self.report is not None:
                self.report(line)
        self.accelerator.log(values, step=step)
