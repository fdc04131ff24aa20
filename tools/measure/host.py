"""What the processor does for a GPU, as images a second on a core, and the GPU rate it can feed.

    python -m tools.measure.host            all parts; seconds
    python -m tools.measure.host --cores 16 how many cores the fed GPU has

Each part is run in one thread and timed by its CPU time, so other work on the machine hardly
matters. A row is a part of the work on an image or sample: ``stage`` waits for it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glit.backends.matchers.crops import whole_pixel_boxes
from glit.backends.proposers.regions import make_regions
from glit.bench.harness import Row
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.random_clip import TINY
from glit.bench.random_dataset import DatasetShape
from glit.data.geometry import suppress_duplicates
from glit.images import Pixels, decode, encode_smaller
from glit.scenes import write_scenes
from glit.training.batch import collate
from glit.training.config import TrainConfig
from glit.training.setup import prepare
from tools.measure.parts import run_parts, seconds
from tools.measure.train import clip_folder, dataset_folder, planned_samples

SIDE = 224
_BOXES = 30


def host_costs(*, side_px: int, num: int, batch_size: int) -> list[Row]:
    """Measure all parts.

    Args:
        side_px: of the images.
        num: images of the build's parts.
        batch_size: samples of a training batch.
    """
    with tempfile.TemporaryDirectory() as folder:
        return [*_of_build(Path(folder), side_px, num), *_of_training(Path(folder), batch_size)]


def _row(part: str, stage: str, work: Callable[[Any], Any], items: list[Any], per: int = 0) -> Row:
    """CPU milliseconds an item, or an item's share if it is ``per`` samples; least of 3 rounds."""
    used = min(seconds(lambda: [work(item) for item in items])[1] for _ in range(3))
    return {"part": part, "stage": stage, "ms": max(1000 * used / (per or len(items)), 1e-6)}


def _of_build(folder: Path, side_px: int, num: int) -> Iterator[Row]:
    write_scenes(folder / "scenes", num=num, seed=1, size=side_px, image_format="jpeg")
    files = [path.read_bytes() for path in sorted((folder / "scenes" / "images").iterdir())]
    images = [decode(data) for data in files]
    boxes = np.array(fixed_boxes(side_px, side_px, _BOXES), dtype=np.float64)
    scores = np.linspace(1, 0.5, len(boxes))

    def regions(image: Pixels) -> None:
        size = {"width": image.shape[1], "height": image.shape[0]}
        make_regions(boxes, scores, [""] * len(boxes), source="yolos", **size)
        suppress_duplicates(boxes, scores, max_iou=0.9)

    def shrink(image: Pixels) -> None:
        encode_smaller(image, max_side=512)

    yield _row("decode", "build", decode, files)
    yield _row("shrink to 512 px (pack.max_side)", "pack", shrink, images)
    plan = f"plan {_BOXES} crops"
    yield _row(plan, "build", lambda image: whole_pixel_boxes(image, boxes), images)
    yield _row(f"{_BOXES} regions, duplicates off", "build", regions, images)


def _of_training(folder: Path, batch_size: int) -> Iterator[Row]:
    clip = clip_folder(TINY, folder)
    shape = DatasetShape(
        num_samples=batch_size, width=640, height=480, num_sentences=8, words=18,
        rows_per_group=64, rows_per_file=4096, distinct_images=16,
    )  # fmt: skip
    dataset = dataset_folder(clip, folder / "dataset", shape)
    made = prepare(TrainConfig(model=str(clip), batch_size=batch_size, num_workers=0), str(dataset))
    loader = made.loader
    samples = planned_samples(loader)
    context = loader.config.context
    sizes: dict[str, Any] = {"side": SIDE, "context": context, "pad_id": loader.pad_id}

    def laid_out(tokenize: Callable[[list[str]], list[list[int]]]) -> Any:
        return collate(samples, tokenize, made.objective.needs, **sizes)

    texts = {text: 0 for s in samples for text in (s.caption, *(p.sentence for p in s.pairs))}
    ids = dict(zip(texts, loader.tokenize(list(texts)), strict=True))

    def known(wanted: Sequence[str]) -> list[list[int]]:
        return [ids[text] for text in wanted]

    _, places = laid_out(known)

    def write(job: tuple[Any, Any]) -> None:
        sample, place = job
        sample.write_pixels(place.whole, place.crops, fit="resize")

    number = len(samples)
    plan = "choose pairs, move boxes"
    yield _row(plan, "train", lambda _: planned_samples(loader), [0], number)
    yield _row("tokenise", "train", loader.tokenize, [list(texts)], number)
    yield _row("lay out a batch", "train", laid_out, [known], number)
    pairs = list(zip(samples, places, strict=True))
    yield _row("decode 640 x 480, fit with a crop", "train", write, pairs)


def fed_rate(costs: list[Row], stage: str, cores: int) -> float:
    """Images a second that so many cores prepare for a GPU, with all parts of a stage."""
    return cores * 1000 / sum(cost["ms"] for cost in costs if cost["stage"] == stage)


def host(arguments: argparse.Namespace) -> Iterator[Row]:
    """All parts of the work, and what so many cores feed a GPU with."""
    costs = host_costs(side_px=arguments.side, num=16, batch_size=256)
    yield from costs
    for stage in ("build", "train"):
        yield {"stage": stage, "fed_images_per_s": fed_rate(costs, stage, arguments.cores)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.host", description=__doc__)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--side", type=int, default=1024, help="of the build's images, pixels")
    parser.set_defaults(threads=1)
    run_parts(parser, {"host": host})


if __name__ == "__main__":
    main()
