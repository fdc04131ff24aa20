"""Load batches from the shards in order; threads or processes decode and fit the images.

A batch is laid out first (which pairs, which texts in which rows, where every pixel goes), then its
images are decoded, each into its place. Several batches are at work at a time.

Threads of this process read the row groups, each once, choose and tokenise. Images are decoded by
threads too, or by processes, which leave the interpreter lock to the training step. Row groups in
memory are bounded by two shuffle windows, batches by the prefetch.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glit.dataset.columns import RowGroup
from glit.dataset.reader import RowGroupCache
from glit.errors import DatasetError, GlitError
from glit.runtime.cores import num_threads
from glit.runtime.prefetch import batched, map_ahead
from glit.training.augment import draw_augmentation
from glit.training.batch import Batch, PixelPlace, Tokenize, collate
from glit.training.config import TrainConfig
from glit.training.decode_processes import DecodeProcesses, Request
from glit.training.mixture import Mixture
from glit.training.objective import Objective
from glit.training.order import BatchPlan, grouped_within_batches
from glit.training.planning import Augment, ChosenPairs, plan_sample, read_columns, reads_captions
from glit.training.sample import EncodedImage, PlannedSample

_IMAGE, _CAPTION = 1, 2
"""Tell draws that change an image, and that choose its caption, from those that choose pairs and
further texts."""

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""A function with the arguments and results of ``map``."""

_MOST_AT_ONCE = 8
"""Samples that a thread or process takes at a time."""

_Placed = tuple[PlannedSample, PixelPlace]


class BatchLoader:
    """The batches of an epoch on one rank, from any position."""

    def __init__(
        self,
        dataset: Mixture,
        objective: Objective,
        tokenize: Tokenize,
        config: TrainConfig,
        *,
        side: int,
        pad_id: int,
        patch_size: int = 0,
        rank: int = 0,
        num_ranks: int = 1,
        pin_memory: bool = False,
        processes: bool = False,
    ) -> None:
        """Open a loader.

        Args:
            dataset: all that is trained on.
            objective: says what it needs of every sample.
            tokenize: its texts.
            config: the run's configuration; a batch holds its samples over all ranks.
            side: of the model's input square, pixels.
            pad_id: token id for empty slots.
            patch_size: side of the model's patches, pixels; only ``train.patches`` = mask needs it.
            rank: this process.
            num_ranks: processes that share a batch.
            pin_memory: page-locked batches, for copies to a GPU that nobody waits for.
            processes: decode in processes of their own instead of threads, until :meth:`close`;
                needs ``decode_processes.IS_SUPPORTED``, and at least one of ``train.num_workers``.
        """
        self.dataset, self.objective, self.tokenize = dataset, objective, tokenize
        self.config, self.side, self.pad_id = config, side, pad_id
        self.patch_size = patch_size
        self.mask_patches = (side // patch_size) ** 2 if config.patches == "mask" else 0
        self.chosen = ChosenPairs(
            how=config.pairs, min_probability=config.min_probability, local=config.local
        )
        self.rank, self.pin_memory = rank, pin_memory
        self.num_workers = num_threads(config.num_workers)
        self.processes = _started(self.num_workers) if processes and self.num_workers else None
        self.plan = BatchPlan(
            num_samples=len(dataset),
            batch_size=config.batch_size,
            num_ranks=num_ranks,
            drop_last=config.drop_last,
        )

    def __len__(self) -> int:
        return len(self.plan)

    def close(self) -> None:
        """End the processes; a loader that is lost does so as well."""
        if self.processes is not None:
            self.processes.close()

    def epoch(self, epoch: int, *, start: int = 0) -> Generator[list[Batch], None, None]:
        """Every batch of ``epoch`` from number ``start``, each as its parts.

        Raises:
            DatasetError: a shard or an image cannot be read; says which.
        """
        config, window = self.config, self.config.shuffle_row_groups
        order = self.dataset.order(
            seed=config.seed, epoch=epoch, window=window, together=config.together
        )
        order = grouped_within_batches(order, config.batch_size)
        capacity = 2 * window * len(self.dataset.parts)
        columns = read_columns(
            self.objective.needs,
            config.local,
            config.patches,
            captions=reads_captions(self.objective, config.caption),
        )
        groups = RowGroupCache(self.dataset, capacity=capacity, columns=columns)
        pass_ = _Pass(loader=self, groups=groups, order=order, epoch=epoch)
        numbers = range(start, len(self))
        if self.num_workers == 0:
            yield from (pass_.batch(number, map) for number in numbers)
        else:
            yield from self._ahead(pass_, numbers)

    def _ahead(self, pass_: _Pass, numbers: range) -> Iterator[list[Batch]]:
        """The same by threads: some that put batches together, and those that they all share for
        reading and decoding."""
        config = self.config
        decoders = ThreadPoolExecutor(self.num_workers, thread_name_prefix="glit-decode")
        collators = ThreadPoolExecutor(config.prefetch_batches, thread_name_prefix="glit-collate")

        def made(number: int) -> list[Batch]:
            return pass_.batch(number, decoders.map)

        try:
            yield from map_ahead(collators, made, numbers, most=config.prefetch_batches)
        finally:
            decoders.shutdown(wait=False, cancel_futures=True)
            collators.shutdown(wait=True, cancel_futures=True)
            decoders.shutdown(wait=True)


def _started(number: int) -> DecodeProcesses | None:
    """The processes; None, with a warning, where the system starts none."""
    try:
        return DecodeProcesses(number)
    except OSError as error:
        warnings.warn(f"threads decode the images, no processes ({error})", stacklevel=2)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Reads the samples of one epoch by their place and makes batches of them."""

    loader: BatchLoader
    groups: RowGroupCache
    order: np.ndarray
    epoch: int

    def batch(self, number: int, each: Map) -> list[Batch]:
        """A batch, in parts of the micro-batch size.

        Args:
            number: of the batch in its epoch.
            each: ``map`` by this thread or by others.
        """
        config, loader = self.loader.config, self.loader
        positions, num_fillers = loader.plan.part(number, loader.rank)
        places = self.order[positions.start : positions.stop]
        numbers = np.unique(places[:, 0]).tolist()
        groups = dict(zip(numbers, each(self.groups.get, numbers), strict=True))
        samples = [self._planned(groups[g], g, row) for g, row in places.tolist()]
        if num_fillers:
            samples += self._fillers(samples, num_fillers)
        size = config.micro_batch_size or len(samples)
        parts: list[Batch] = []
        placed: list[_Placed] = []
        for start in range(0, len(samples), size):
            part = samples[start : start + size]
            batch, pixels = collate(
                part,
                loader.tokenize,
                loader.objective.needs,
                side=loader.side,
                context=config.context,
                pad_id=loader.pad_id,
                mask_patches=loader.mask_patches,
                inputs=loader.objective.inputs(loader.side),
                pin_memory=loader.pin_memory,
            )
            parts.append(batch)
            placed += zip(part, pixels, strict=True)
        share = min(_MOST_AT_ONCE, -(-len(samples) // max(loader.num_workers, 1)))
        for _ in each(self._write, batched(placed, share)):
            pass
        return parts

    def _planned(self, group: RowGroup, number: int, row: int) -> PlannedSample:
        config = self.loader.config
        with self._named(group, row):
            return plan_sample(
                group,
                row,
                self.loader.objective,
                side=self.loader.side,
                fit=config.image_fit,
                chosen=self.loader.chosen,
                draw=np.random.default_rng([config.seed, self.epoch, number, row]),
                augment=self._augment(number, row),
                caption=config.caption,
                draw_caption=np.random.default_rng([config.seed, self.epoch, number, row, _CAPTION])
                if config.caption == "sample"
                else None,
            )

    def _augment(self, number: int, row: int) -> Augment | None:
        """Return the function that augments a sample's image, by draws of its own; None without."""
        config = self.loader.config
        if config.min_crop == 1 and not config.flip:
            return None
        return functools.partial(
            draw_augmentation,
            min_crop=config.min_crop,
            flip=config.flip,
            draw=np.random.default_rng([config.seed, self.epoch, number, row, _IMAGE]),
        )

    def _write(self, placed: list[_Placed]) -> None:
        """Write all that goes into the memory of some samples of a batch."""
        loader = self.loader
        self._write_pixels(placed)
        for sample, place in placed:
            if place.patches is not None:
                with self._named(sample.group, sample.row):
                    sample.write_patches(
                        place.patches,
                        side=loader.side,
                        patch_size=loader.patch_size,
                        fit=loader.config.image_fit,
                    )
            if place.inputs and place.whole is not None:
                loader.objective.prepare(place.whole, sample.caption, place.inputs)

    def _write_pixels(self, placed: list[_Placed]) -> None:
        loader, fit = self.loader, self.loader.config.image_fit
        placed = [each for each in placed if each[1].whole is not None or len(each[1].crops)]
        images: list[EncodedImage] = []
        for sample, place in placed:
            with self._named(sample.group, sample.row):
                image = sample.encoded(crops=bool(len(place.crops)))
                if loader.processes is None:
                    image.write_pixels(place.whole, place.crops, fit=fit)
                images.append(image)
        if loader.processes is None or not images:
            return
        whole = placed[0][1].whole is not None
        out = [
            each.numpy().data for _, place in placed for each in (place.whole, place.crops)
            if each is not None
        ]  # fmt: skip
        failure = loader.processes.decode(Request(images, whole, loader.side, fit), out)
        if failure is not None:
            sample, _ = placed[failure.number]
            with self._named(sample.group, sample.row):
                raise DatasetError(failure.message)

    @contextlib.contextmanager
    def _named(self, group: RowGroup, row: int) -> Iterator[None]:
        """Errors say which sample it was."""
        try:
            yield
        except GlitError as error:
            raise DatasetError(
                f"{self.loader.dataset.path}: sample {group.value('sample_id', row)} in "
                f"{group.name} cannot be decoded ({error}); run 'glit verify' and rebuild it"
            ) from error

    def _fillers(self, samples: list[PlannedSample], number: int) -> list[PlannedSample]:
        """Stand-ins that make all ranks' parts equally long; masked out of every loss."""
        first, row = self.order[0].tolist()
        pattern = samples[0] if samples else self._planned(self.groups.get(first), first, row)
        filler = replace(pattern, pairs=(), boxes_K4=np.zeros((0, 4)), texts=(), filler=True)
        return [filler] * number
