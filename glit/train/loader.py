"""Batches from the shards: read, decoded and fitted by threads, tokenised once a batch, in order.

Threads rather than processes: reading, JPEG decoding, resizing and tokenising all release the
interpreter lock, row groups are shared instead of being read once per process, and pixels are
never pickled. Row groups in memory are bounded by two shuffle windows, batches by the prefetch.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.clip.preprocess import crop, fit_boxes, fit_image
from glit.clip.text_rows import lay_out
from glit.errors import DatasetError, GlitError
from glit.images import decode
from glit.train.batch import Batch
from glit.train.config import ImageFit
from glit.train.order import BatchPlan, epoch_order
from glit.train.source import LocalPair, Row, RowGroupCache, Shards, best_pairs

Tokenize = Callable[[list[str]], list[list[int]]]
"""Token ids of texts with start and end token, cut to the text window; one call a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """What a batch is made of, and how it is fetched."""

    side: int
    """Side of the model's input square, pixels."""

    fit: ImageFit
    """How an image becomes that square."""

    needs_global: bool
    """Whether whole images and captions are loaded."""

    num_local: int
    """Local slots a sample."""

    distinct_regions: bool
    """Keep only the best sentence of every region."""

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

    pin_memory: bool = False
    """Put pixels in page-locked memory for fast copies to a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One sample ready to be put into a batch."""

    caption: str
    global_image: UInt8[Tensor, "3 s s"] | None
    local_images: list[UInt8[Tensor, "3 s s"]]
    pairs: tuple[LocalPair, ...]
    boxes_K4: Float[np.ndarray, "k 4"]
    filler: bool = False


class BatchLoader:
    """The batches of an epoch on one rank, from any position."""

    def __init__(
        self,
        shards: Shards,
        tokenize: Tokenize,
        config: LoaderConfig,
        *,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self.shards = shards
        self.tokenize = tokenize
        self.config = config
        self.rank = rank
        self.plan = BatchPlan(
            num_samples=shards.num_samples,
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
            [group.num_rows for group in self.shards.row_groups],
            seed=self.config.seed,
            epoch=epoch,
            window=self.config.window,
        )
        tables = RowGroupCache(self.shards, capacity=2 * self.config.window)
        if self.config.num_workers == 0:
            for batch in range(start, len(self)):
                places, fillers = self._places(order, batch)
                samples = [self._load(tables, *place) for place in places]
                yield self._collate(samples + self._fillers(samples, fillers, tables, order))
            return
        yield from _Pipeline(self, tables, order, start=start)

    def _places(self, order: np.ndarray, batch: int) -> tuple[list[tuple[int, int]], int]:
        positions, fillers = self.plan.part(batch, self.rank)
        return [(int(order[i, 0]), int(order[i, 1])) for i in positions], fillers

    def _load(self, tables: RowGroupCache, group: int, row: int) -> Decoded:
        place = self.shards.row_groups[group]
        sample = tables.get(group)[row]
        try:
            return decode_row(sample, self.config)
        except GlitError as error:
            raise DatasetError(
                f"{self.shards.dataset}/{place.path}: sample {sample.sample_id} in row group "
                f"{place.index} cannot be decoded ({error}); run 'glit verify' and rebuild it"
            ) from error

    def _fillers(
        self, samples: list[Decoded], number: int, tables: RowGroupCache, order: np.ndarray
    ) -> list[Decoded]:
        """Stand-ins that make all ranks' parts equally long; masked out of every loss."""
        if number == 0:
            return []
        pattern = samples[0] if samples else self._load(tables, int(order[0, 0]), int(order[0, 1]))
        filler = Decoded(
            caption=pattern.caption,
            global_image=pattern.global_image,
            local_images=[],
            pairs=(),
            boxes_K4=np.zeros((0, 4)),
            filler=True,
        )
        return [filler] * number

    def _collate(self, samples: list[Decoded]) -> list[Batch]:
        size = self.config.micro_batch_size or len(samples)
        parts = [samples[i : i + size] for i in range(0, len(samples), size)]
        return [collate(part, self.tokenize, self.config) for part in parts]


def decode_row(row: Row, config: LoaderConfig) -> Decoded:
    """Decode a sample once; fit the whole image and the crops of its pairs, move its boxes."""
    pairs = best_pairs(row.pairs, most=config.num_local, distinct_regions=config.distinct_regions)
    need_pixels = config.needs_global or pairs
    image = decode(row.image) if need_pixels else np.zeros((1, 1, 3), dtype=np.uint8)
    boxes = np.array([pair.box_xyxy for pair in pairs], dtype=np.float64).reshape(-1, 4)
    square = {"side": config.side, "fit": config.fit}
    whole = fit_image(image, **square).contiguous() if config.needs_global else None
    return Decoded(
        caption=row.caption,
        global_image=whole,
        local_images=[fit_image(crop(image, box), **square).contiguous() for box in boxes],
        pairs=pairs,
        boxes_K4=fit_boxes(boxes, width=row.width, height=row.height, **square),
    )


def collate(samples: list[Decoded], tokenize: Tokenize, config: LoaderConfig) -> Batch:
    """Put samples into one batch: pixels in one block, texts tokenised in one call and packed."""
    num_samples, num_slots = len(samples), config.num_local
    images = [s.global_image for s in samples if s.global_image is not None]
    texts = [s.caption for s in samples] if config.needs_global else []
    num_global = len(images)
    boxes = torch.zeros(num_samples, num_slots, 4)
    spans = torch.zeros(num_samples, num_slots, 2, dtype=torch.long)
    valid_local = torch.zeros(num_samples, num_slots, dtype=torch.bool)
    similarity = torch.zeros(num_samples, num_slots)
    slots: list[int] = []
    for index, sample in enumerate(samples):
        images += sample.local_images
        for k, pair in enumerate(sample.pairs):
            texts.append(pair.sentence)
            slots.append(index * num_slots + k)
            boxes[index, k] = torch.from_numpy(sample.boxes_K4[k])
            spans[index, k] = torch.tensor(pair.token_span)
            valid_local[index, k] = True
            similarity[index, k] = pair.similarity
    pixels = torch.empty(
        (len(images), 3, config.side, config.side), dtype=torch.uint8, pin_memory=config.pin_memory
    )
    for index, image in enumerate(images):
        pixels[index] = image
    return Batch(
        pixels_V3SS=pixels,
        texts=lay_out(tokenize(texts) if texts else [], pad_id=config.pad_id),
        num_global=num_global,
        slot_M=torch.tensor(slots, dtype=torch.long),
        boxes_BK4=boxes,
        spans_BK2=spans,
        valid_B=torch.tensor([not s.filler for s in samples]),
        valid_local_BK=valid_local,
        similarity_BK=similarity,
    )


@dataclass(slots=True)
class _Pipeline:
    """Decoding threads, and one thread that puts finished samples into batches, in order."""

    loader: BatchLoader
    tables: RowGroupCache
    order: np.ndarray
    start: int
    _ready: queue.Queue[Any] = field(init=False)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def __iter__(self) -> Iterator[list[Batch]]:
        config = self.loader.config
        self._ready = queue.Queue(maxsize=config.prefetch)
        pool = ThreadPoolExecutor(config.num_workers, thread_name_prefix="glit-decode")
        feeder = threading.Thread(target=self._feed, args=(pool,), name="glit-collate", daemon=True)
        feeder.start()
        try:
            for _ in range(self.start, len(self.loader)):
                item = self._ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            feeder.join()

    def _feed(self, pool: ThreadPoolExecutor) -> None:
        loader = self.loader
        pending: list[tuple[list[Future[Decoded]], int]] = []
        next_batch = self.start
        try:
            while (pending or next_batch < len(loader)) and not self._stop.is_set():
                while next_batch < len(loader) and len(pending) < loader.config.prefetch:
                    places, fillers = loader._places(self.order, next_batch)
                    futures = [pool.submit(loader._load, self.tables, *p) for p in places]
                    pending.append((futures, fillers))
                    next_batch += 1
                futures, fillers = pending.pop(0)
                samples = [future.result() for future in futures]
                samples += loader._fillers(samples, fillers, self.tables, self.order)
                self._put(loader._collate(samples))
        except BaseException as error:  # noqa: BLE001 (raised again in the training thread)
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.2)
                return
            except queue.Full:
                continue
