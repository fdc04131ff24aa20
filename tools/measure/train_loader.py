"""The loader's part of the training benchmark: against bare decoding, and by dataset size."""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glit.bench.machine import resident_mb
from glit.bench.random_clip import TINY
from glit.bench.random_dataset import DatasetShape
from glit.training.config import TrainConfig
from glit.training.loader import BatchLoader
from glit.training.sample import PlannedSample
from glit.training.setup import Ingredients, prepare
from tools.measure.train_setup import (
    Timing,
    clip_folder,
    dataset_folder,
    planned_samples,
    timed,
)


def loader_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Loader against bare decoding, for photographs of 1.5 megapixels; then 3 against packed."""
    results: dict[str, Any] = {"threads": arguments.threads, "images": arguments.images}
    sizes = {"1500x1000": (1500, 1000, 0), "2048x1536": (2048, 1536, 0)}
    sizes["2048x1536 with pack.max_side=512"] = (2048, 1536, 512)
    clip = clip_folder(TINY, scratch)
    for name, (width, height, max_side) in sizes.items():
        dataset = dataset_folder(
            clip,
            scratch / name,
            DatasetShape(
                num_samples=arguments.images,
                width=width,
                height=height,
                rows_per_group=16,
                distinct_images=16,
            ),
            max_side=max_side,
        )
        config = TrainConfig(
            model=str(clip),
            batch_size=16,
            num_workers=arguments.threads,
            shuffle_row_groups=4,
        )
        made = prepare(config, str(dataset))
        loader = _with_side(made, 224)
        bare, whole = [], []
        for _ in range(arguments.repeats):
            bare.append(_bare(loader, arguments.threads))
            whole.append(timed(lambda loader=loader: _drain(loader)))
        pairs = list(zip(whole, bare, strict=True))
        each = 1000 / arguments.images
        results[name] = {
            "bare_cpu_ms_per_image": each * statistics.median(t.cpu_s for t in bare),
            "loader_cpu_ms_per_image": each * statistics.median(t.cpu_s for t in whole),
            "ratio_wall": statistics.median(w.wall_s / b.wall_s for w, b in pairs),
            "ratio_cpu": statistics.median(w.cpu_s / b.cpu_s for w, b in pairs),
        }
    large, packed = results["2048x1536"], results["2048x1536 with pack.max_side=512"]
    gain = large["loader_cpu_ms_per_image"] / packed["loader_cpu_ms_per_image"]
    results["gain_of_max_side"] = gain
    return results


def flat_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Time per sample and peak memory of an epoch of the loader, by the size of the dataset."""
    clip = clip_folder(TINY, scratch)
    results = {}
    for number in (1_000, 10_000, 50_000):
        shape = DatasetShape(
            num_samples=number,
            num_sentences=2,
            rows_per_group=100,
            rows_per_file=5_000,
            distinct_images=64,
        )
        dataset = dataset_folder(clip, scratch / str(number), shape)
        config = TrainConfig(model=str(clip), batch_size=64, num_workers=arguments.threads)
        loader = prepare(config, str(dataset)).loader
        timing = timed(lambda loader=loader: _drain(loader))
        results[str(number)] = {
            "wall_ms_per_sample": 1000 * timing.wall_s / number,
            "cpu_ms_per_sample": 1000 * timing.cpu_s / number,
            "resident_mb": resident_mb(),
        }
    return results


def _with_side(made: Ingredients, side: int) -> BatchLoader:
    """The loader, fitting images to another square than its model's."""
    loader = made.loader
    loader.config = replace(loader.config, side=side)
    return loader


def _bare(loader: BatchLoader, threads: int) -> Timing:
    """Time to decode and resize every image and crop of the dataset, bytes in memory."""
    samples, side = planned_samples(loader), loader.config.side

    def decoded(sample: PlannedSample) -> None:
        pixels = torch.empty(1 + len(sample.pairs), 3, side, side, dtype=torch.uint8)
        sample.write_pixels(pixels[0], pixels[1:], fit=loader.config.fit)

    def work() -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(decoded, samples):
                pass

    return timed(work)


def _drain(loader: BatchLoader) -> None:
    for _ in loader.epoch(0):
        pass
