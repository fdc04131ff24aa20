"""Batches from the shards: read, decoded and fitted by threads, tokenised once a batch, in order.

Threads rather than processes: reading, JPEG decoding, resizing and tokenising all release the
interpreter lock, row groups are shared instead of being read once per process, and pixels are
never pickled. Row groups in memory are bounded by two shuffle windows, batches by the prefetch.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glit.clip import ImageFit
from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import DatasetError, GlitError
from glit.train.batch import Batch, Tokenize, collate
from glit.train.objective import Objective
from glit.train.order import BatchPlan, epoch_order
from glit.train.sample import BEST_PAIRS, READ_COLUMNS, ChosenPairs, Decoded, decode_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """What a batch is made of, and how it is fetched."""

    side: int
    """Side of the model's input square, pixels."""

    fit: ImageFit
    """How an image becomes that square."""

    pad_id: int
    """Token id for empty slots."""

    batch_size: int
    """Samples of a batch over all ranks."""

    micro_batch_size: int = 0
    """Samples of one part of a batch on this rank; 0 for a single part."""

    drop_last: bool = False
    """Skip the smaller last batch."""

    seed: int = 0
    """Decides the order."""

    window: int = 16
    """Row groups shuffled together."""

    num_workers: int = 4
    """Threads; 0 loads in the calling thread."""

    prefetch: int = 4
    """Batches prepared ahead."""

    chosen: ChosenPairs = BEST_PAIRS
    """Which local pairs are learned from."""

    pin_memory: bool = False
    """Put pixels in page-locked memory for fast copies to a GPU."""


class BatchLoader:
    """The batches of an epoch on one rank, from any position."""

    def __init__(
        self,
        dataset: Dataset,
        objective: Objective,
        tokenize: Tokenize,
        config: LoaderConfig,
        *,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self.dataset = dataset
        self.objective = objective
        self.tokenize = tokenize
        self.config = config
        self.rank = rank
        self.plan = BatchPlan(
            num_samples=len(dataset),
            batch_size=config.batch_size,
            num_ranks=num_ranks,
            drop_last=config.drop_last,
        )

    def __len__(self) -> int:
        return len(self.plan)

    def epoch(self, epoch: int, *, start: int = 0) -> Generator[list[Batch], None, None]:
        """Every batch of ``epoch`` from number ``start``, each as its parts.

        Raises:
            DatasetError: a shard or an image cannot be read; says which.
        """
        order = epoch_order(
            [place.num_rows for place in self.dataset.places],
            seed=self.config.seed,
            epoch=epoch,
            window=self.config.window,
        )
        groups = RowGroupCache(self.dataset, capacity=2 * self.config.window, columns=READ_COLUMNS)
        pass_ = _Pass(loader=self, groups=groups, order=order, epoch=epoch)
        if self.config.num_workers == 0:
            for batch in range(start, len(self)):
                places, fillers = pass_.places(batch)
                yield pass_.parts([pass_.load(*place) for place in places], fillers)
            return
        yield from _Pipeline(pass_, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Reads the samples of one epoch by their place and makes batches of them."""

    loader: BatchLoader
    groups: RowGroupCache
    order: np.ndarray
    epoch: int

    def places(self, batch: int) -> tuple[list[tuple[int, int]], int]:
        """Row group and row of each of this rank's samples, and how many fillers follow."""
        positions, fillers = self.loader.plan.part(batch, self.loader.rank)
        return [(int(self.order[i, 0]), int(self.order[i, 1])) for i in positions], fillers

    def load(self, group: int, row: int) -> Decoded:
        """A sample, decoded."""
        config, dataset = self.loader.config, self.loader.dataset
        samples = self.groups.get(group)
        try:
            return decode_sample(
                samples,
                row,
                self.loader.objective,
                side=config.side,
                fit=config.fit,
                chosen=config.chosen,
                draw=np.random.default_rng([config.seed, self.epoch, group, row]),
            )
        except GlitError as error:
            place = dataset.places[group]
            raise DatasetError(
                f"{dataset.path}/{place.path}: sample {samples.value('sample_id', row)} in row "
                f"group {place.index} cannot be decoded ({error}); run 'glit verify' and rebuild it"
            ) from error

    def parts(self, samples: list[Decoded], num_fillers: int) -> list[Batch]:
        """The batch, in parts of the micro-batch size."""
        loader, config = self.loader, self.loader.config
        samples = samples + self._fillers(samples, num_fillers)
        size = config.micro_batch_size or len(samples)
        return [
            collate(
                samples[start : start + size],
                loader.tokenize,
                loader.objective.needs,
                side=config.side,
                pad_id=config.pad_id,
                pin_memory=config.pin_memory,
            )
            for start in range(0, len(samples), size)
        ]

    def _fillers(self, samples: list[Decoded], number: int) -> list[Decoded]:
        """Stand-ins that make all ranks' parts equally long; masked out of every loss."""
        if number == 0:
            return []
        first = (int(self.order[0, 0]), int(self.order[0, 1]))
        pattern = samples[0] if samples else self.load(*first)
        filler = Decoded(
            caption=pattern.caption,
            global_image=pattern.global_image,
            local_images=[],
            pairs=(),
            boxes_K4=np.zeros((0, 4)),
            filler=True,
        )
        return [filler] * number


@dataclass(slots=True)
class _Pipeline:
    """Decoding threads, and one thread that puts finished samples into batches, in order."""

    of: _Pass
    start: int
    _ready: queue.Queue[Any] = field(init=False)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def __iter__(self) -> Iterator[list[Batch]]:
        config = self.of.loader.config
        self._ready = queue.Queue(maxsize=config.prefetch)
        pool = ThreadPoolExecutor(config.num_workers, thread_name_prefix="glit-decode")
        feeder = threading.Thread(target=self._feed, args=(pool,), name="glit-collate", daemon=True)
        feeder.start()
        try:
            for _ in range(self.start, len(self.of.loader)):
                item = self._ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            feeder.join()

    def _feed(self, pool: ThreadPoolExecutor) -> None:
        loader = self.of.loader
        pending: list[tuple[list[Future[Decoded]], int]] = []
        next_batch = self.start
        try:
            while (pending or next_batch < len(loader)) and not self._stop.is_set():
                while next_batch < len(loader) and len(pending) < loader.config.prefetch:
                    places, fillers = self.of.places(next_batch)
                    pending.append(([pool.submit(self.of.load, *p) for p in places], fillers))
                    next_batch += 1
                futures, fillers = pending.pop(0)
                self._put(self.of.parts([future.result() for future in futures], fillers))
        except BaseException as error:  # noqa: BLE001 - the training thread raises it
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.2)
                return
            except queue.Full:
                continue
