"""What the processor does for a GPU, as images a second on a core, and the GPU rate it can feed.

    python -m tools.measure.host            all parts; seconds
    python -m tools.measure.host --cores 16 how many cores the fed GPU has

Each part is run in one thread and timed by its CPU time, so other work on the machine hardly
matters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from glit.backends.matchers.crops import whole_pixel_boxes
from glit.backends.proposers.regions import make_regions
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.random_clip import TINY
from glit.bench.random_dataset import DatasetShape
from glit.bench.tables import print_table
from glit.data.geometry import suppress_duplicates
from glit.images import Pixels, decode, encode_smaller
from glit.scenes import write_scenes
from glit.training.batch import collate
from glit.training.config import TrainConfig
from glit.training.sample import PlannedSample
from glit.training.setup import prepare
from tools.measure.train_setup import clip_folder, dataset_folder, planned_samples

SIDE = 224
_BOXES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """CPU time of a part of the work on an image."""

    part: str
    stage: str
    """Who waits for it: ``build``, ``pack`` or ``train``."""
    ms: float
    """An image, or a sample."""

    @property
    def images_a_core(self) -> float:
        """Images a second on a core that does nothing else."""
        return 1000 / self.ms


def host_costs(*, side_px: int, num: int, batch_size: int) -> list[HostCost]:
    """Measure all parts.

    Args:
        side_px: of the images.
        num: images of the build's parts.
        batch_size: samples of a training batch.
    """
    with tempfile.TemporaryDirectory() as folder:
        return [*_of_build(Path(folder), side_px, num), *_of_training(Path(folder), batch_size)]


def _of_build(folder: Path, side_px: int, num: int) -> list[HostCost]:
    write_scenes(folder / "scenes", num=num, seed=1, size=side_px, image_format="jpeg")
    files = [path.read_bytes() for path in sorted((folder / "scenes" / "images").iterdir())]
    images = [decode(data) for data in files]
    boxes = np.array(fixed_boxes(side_px, side_px, _BOXES), dtype=np.float64)
    scores = np.linspace(1, 0.5, len(boxes))

    def regions(image: Pixels) -> None:
        size = {"width": image.shape[1], "height": image.shape[0]}
        make_regions(boxes, scores, [""] * len(boxes), source="yolos", **size)
        suppress_duplicates(boxes, scores, max_iou=0.9)

    parts: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "decode": (decode, files),
        "shrink to 512 px (pack.max_side)": (lambda i: encode_smaller(i, max_side=512), images),
        f"plan {_BOXES} crops": (lambda image: whole_pixel_boxes(image, boxes), images),
        f"{_BOXES} regions, duplicates off": (regions, images),
    }
    return [
        HostCost(part=part, stage=_stage(part), ms=_ms_each(work, items))
        for part, (work, items) in parts.items()
    ]


def _stage(part: str) -> str:
    return "pack" if "pack" in part else "build"


def _of_training(folder: Path, batch_size: int) -> list[HostCost]:
    clip = clip_folder(TINY, folder)
    shape = DatasetShape(
        num_samples=batch_size,
        width=640,
        height=480,
        num_sentences=8,
        words=18,
        rows_per_group=64,
        rows_per_file=4096,
        distinct_images=16,
    )
    dataset = dataset_folder(clip, folder / "dataset", shape)
    made = prepare(TrainConfig(model=str(clip), batch_size=batch_size, num_workers=0), str(dataset))
    loader = made.loader
    samples = planned_samples(loader)

    def laid_out(tokenize: Callable[[list[str]], list[list[int]]]) -> Any:
        config = loader.config
        return collate(
            samples, tokenize, made.objective.needs,
            side=SIDE, context=config.context, pad_id=config.pad_id,
        )  # fmt: skip

    _, places = laid_out(loader.tokenize)
    written = list(zip(samples, places, strict=True))
    ids: dict[str, list[int]] = {}

    def known(texts: list[str]) -> list[list[int]]:
        if not ids:
            ids.update(zip(texts, loader.tokenize(texts), strict=True))
        return [ids[text] for text in texts]

    known([text for s in samples for text in (s.caption, *(p.sentence for p in s.pairs))])
    texts = list(ids)

    def write(job: tuple[PlannedSample, Any]) -> None:
        sample, place = job
        sample.write_pixels(place.whole, place.crops, fit="resize")

    per_sample = 1 / len(samples)
    return [
        HostCost(
            part="choose pairs, move boxes",
            stage="train",
            ms=_ms_each(lambda _: planned_samples(loader), [0]) * per_sample,
        ),
        HostCost(
            part="tokenise", stage="train", ms=_ms_each(loader.tokenize, [texts]) * per_sample
        ),
        HostCost(
            part="lay out a batch", stage="train", ms=_ms_each(laid_out, [known]) * per_sample
        ),
        HostCost(
            part="decode 640 x 480, fit with a crop", stage="train", ms=_ms_each(write, written)
        ),
    ]


def _ms_each(work: Callable[[Any], Any], items: list[Any], repeats: int = 3) -> float:
    """CPU milliseconds an item, the least of some rounds."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        for item in items:
            work(item)
        times.append(time.process_time() - started)
    return max(1000 * min(times) / len(items), 1e-6)


def fed_rate(costs: list[HostCost], stage: str, cores: int) -> float:
    """Images a second that so many cores prepare for a GPU, with all parts of a stage."""
    return cores * 1000 / sum(cost.ms for cost in costs if cost.stage == stage)


def main() -> None:
    """Measure and print."""
    import torch

    parser = argparse.ArgumentParser(description="What the processor does for a GPU.")
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--side", type=int, default=1024, help="of the build's images, pixels")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    costs = host_costs(side_px=arguments.side, num=16, batch_size=256)
    rows = [[c.part, c.stage, f"{c.ms:.3f}", f"{c.images_a_core:,.0f}"] for c in costs]
    console = Console()
    print_table(console, ["part", "of", "CPU ms", "images/s a core"], rows)
    for stage in ("build", "train"):
        rate = fed_rate(costs, stage, arguments.cores)
        console.print(f"{stage}: {arguments.cores} cores feed a GPU of {rate:,.0f} images/s")


if __name__ == "__main__":
    main()
