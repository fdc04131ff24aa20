"""How fast training is: ``python -m glit.bench.train PART -o OUT``.

``step``    our step against the published way, time alternated in one process, loss compared,
            peak memory in a process each; full-size ViT-B/16 with random weights
``loader``  batches from shards against bare decoding and resizing of the same images by the same
            threads; large photographs against the same ones packed with ``pack.max_side``
``flat``    cost per sample and memory from 1,000 to 50,000 samples
``gpu``     samples a second from tensors in memory against the matrix rate of the device

Every part prints JSON and writes it to ``OUT/PART.json``.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.bench.published_step import padded_batch, published_loss
from glit.bench.random_clip import TINY, VIT_B_16, ClipShape, write_random_clip
from glit.bench.random_dataset import WORDS, DatasetShape, write_random_dataset
from glit.images import encode_smaller
from glit.train.config import TrainConfig
from glit.train.loader import BatchLoader, Decoded, collate, decode_row
from glit.train.loop import parameter_groups
from glit.train.setup import Ingredients, prepare
from glit.train.step import run_step

CLIP_VOCABULARY = 49_408
SHAPES = {"vit-b-16": VIT_B_16, "tiny": TINY}
CAPTION = {"num_sentences": 10, "words": 19}
"""202 tokens a caption and 22 a sentence with start and end; GLIT100k's mean is 159 words."""


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(prog="python -m glit.bench.train", description=__doc__)
    parser.add_argument("part", choices=["step", "loader", "flat", "gpu", "memory"])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    parser.add_argument("--model", choices=SHAPES, default="vit-b-16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--variant", choices=["published", "glit"], default="glit")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        result = PARTS[arguments.part](arguments, Path(scratch))
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.part != "memory":
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / f"{arguments.part}.json").write_text(text + "\n", encoding="utf-8")


def step_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Both steps on the same batch, alternated; then the memory of each."""
    steps = _steps(SHAPES[arguments.model], arguments.batch, scratch)
    losses = {name: step() for name, step in steps.items()}  # also warms up
    times: dict[str, list[Timing]] = {name: [] for name in steps}
    for _ in range(arguments.repeats):
        for name, step in steps.items():
            times[name].append(_timed(step))
    memory = {name: _memory_of(name, arguments) for name in steps}
    pairs = list(zip(times["published"], times["glit"], strict=True))
    return {
        "model": arguments.model,
        "weights": "random",
        "batch": arguments.batch,
        "threads": arguments.threads,
        "wall_s": {name: [t.wall_s for t in values] for name, values in times.items()},
        "cpu_s": {name: [t.cpu_s for t in values] for name, values in times.items()},
        "speedup_wall": statistics.median(p.wall_s / g.wall_s for p, g in pairs),
        "speedup_cpu": statistics.median(p.cpu_s / g.cpu_s for p, g in pairs),
        "loss": losses,
        "loss_difference": abs(losses["glit"] - losses["published"]),
        "peak_memory_mb": memory,
        "memory_ratio": memory["published"] / memory["glit"],
    }


def memory_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """What a step adds to the resident memory before it, at its peak."""
    step = _steps(SHAPES[arguments.model], arguments.batch, scratch)[arguments.variant]
    before = _resident_mb()
    step()
    return {"peak_mb": _peak_mb() - before}


def loader_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Loader against bare decoding, for photographs of 1.5 megapixels; then 3 against packed."""
    results: dict[str, Any] = {"threads": arguments.threads, "images": arguments.images}
    sizes = {"1500x1000": (1500, 1000, 0), "2048x1536": (2048, 1536, 0)}
    sizes["2048x1536 with pack.max_side=512"] = (2048, 1536, 512)
    clip = _clip(TINY, scratch)
    for name, (width, height, max_side) in sizes.items():
        dataset = _dataset(
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
            whole.append(_timed(lambda loader=loader: _drain(loader)))
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
    clip = _clip(TINY, scratch)
    results = {}
    for number in (1_000, 10_000, 50_000):
        shape = DatasetShape(
            num_samples=number, rows_per_group=100, rows_per_file=5_000, distinct_images=64
        )
        dataset = _dataset(clip, scratch / str(number), shape)
        config = TrainConfig(model=str(clip), batch_size=64, num_workers=arguments.threads)
        loader = prepare(config, str(dataset)).loader
        timing = _timed(lambda loader=loader: _drain(loader))
        results[str(number)] = {
            "wall_ms_per_sample": 1000 * timing.wall_s / number,
            "cpu_ms_per_sample": 1000 * timing.cpu_s / number,
            "resident_mb": _resident_mb(),
        }
    return results


def gpu_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """GLIT100k's schedule from tensors in memory: rate, share of the matrix rate, and the floor."""
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no")
    device, shape = accelerator.device, SHAPES[arguments.model]
    made, samples = _made(shape, arguments.batch, scratch)
    batch = _collated(made, samples).to(device)
    optimizer = torch.optim.AdamW(parameter_groups(made.encoder, TrainConfig()), lr=5e-6)
    encoder, optimizer = accelerator.prepare(made.encoder, optimizer)

    def step() -> None:
        run_step([batch], encoder=encoder, objective=made.objective, accelerator=accelerator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _finish(device)

    for _ in range(3):
        step()
    seconds = statistics.median(_timed(step).wall_s for _ in range(max(3, arguments.repeats)))
    operations = step_operations(shape, batch.texts.length_T.tolist(), len(batch.pixels_V3SS))
    rate = _matrix_rate(device)
    floor = operations / rate
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "model": arguments.model,
        "weights": "random",
        "batch": arguments.batch,
        "seconds_per_step": seconds,
        "samples_per_second": arguments.batch / seconds,
        "epoch_of_100647_pairs_s": 100_647 / (arguments.batch / seconds),
        "matrix_rate_tflops": rate / 1e12,
        "share_of_matrix_rate": floor / seconds,
        "floor_seconds_per_step": floor,
    }


def step_operations(shape: ClipShape, text_lengths: list[int], num_images: int) -> float:
    """Multiply-adds times two of a forward and backward pass, padding not counted."""
    patches = (shape.image_size // shape.patch_size) ** 2
    vision = _tower(shape.vision_width, shape.vision_layers, [patches + 1])
    vision += 2 * patches * 3 * shape.patch_size**2 * shape.vision_width
    text = _tower(shape.text_width, shape.text_layers, text_lengths)
    return 3 * (num_images * vision + text)


def _tower(width: int, layers: int, lengths: list[int]) -> float:
    return sum(layers * (24 * width**2 * n + 4 * width * n**2) for n in lengths)


def _matrix_rate(device: torch.device) -> float:
    """Operations a second of a large matrix product in the step's precision."""
    cuda = device.type == "cuda"
    side, kind = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a = torch.randn(side, side, device=device, dtype=kind)

    def product() -> None:
        for _ in range(10):
            torch.matmul(a, a)
        _finish(device)

    product()
    return 10 * 2 * side**3 / min(_timed(product).wall_s for _ in range(5))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _steps(shape: ClipShape, batch_size: int, scratch: Path) -> dict[str, Callable[[], float]]:
    """A whole step of either variant on one model, ours with its tokenising and packing.

    They return the loss; the learning rate is zero, so that every call does the same.
    """
    from accelerate import Accelerator

    made, samples = _made(shape, batch_size, scratch)
    optimizer = torch.optim.AdamW(parameter_groups(made.encoder, TrainConfig()), lr=0.0)
    accelerator = Accelerator(cpu=True)
    tokenizer = TextTokenizer(made.start)
    padded = padded_batch(samples, tokenizer, mean=made.encoder.mean_3, std=made.encoder.std_3)
    made.encoder.train()

    def ours() -> float:
        metrics = run_step(
            [_collated(made, samples)],
            encoder=made.encoder,
            objective=made.objective,
            accelerator=accelerator,
        )
        optimizer.step()
        optimizer.zero_grad()
        return float(metrics["loss"])

    def theirs() -> float:
        loss = published_loss(made.encoder.clip, padded, tokenizer)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return {"published": theirs, "glit": ours}


def _made(shape: ClipShape, batch: int, scratch: Path) -> tuple[Ingredients, list[Decoded]]:
    """Model, objective and the decoded samples of one batch."""
    clip, dataset = scratch / "clip", scratch / "dataset"
    if not dataset.exists():
        data = DatasetShape(num_samples=batch, width=320, height=240, **CAPTION)
        dataset = _dataset(_clip(shape, scratch), dataset, data)
    made = prepare(TrainConfig(model=str(clip), batch_size=batch, num_workers=0), str(dataset))
    shards = made.loader.shards
    samples = [
        decode_row(rows[i], made.loader.config)
        for rows in map(shards.read, range(len(shards.row_groups)))
        for i in range(len(rows))
    ]
    return made, samples


def _collated(made: Ingredients, samples: list[Decoded]) -> Any:
    return collate(samples, made.loader.tokenize, made.loader.config)


def _clip(shape: ClipShape, scratch: Path) -> Path:
    rows = CLIP_VOCABULARY if shape is VIT_B_16 else 0
    return write_random_clip(
        scratch / "clip",
        shape,
        seed=0,
        corpus=[" ".join(WORDS)] * 3,
        vocabulary=900,
        embedding_rows=rows,
    )


def _dataset(clip: Path, folder: Path, shape: DatasetShape, *, max_side: int = 0) -> Path:
    from glit.images import decode

    def smaller(index: int, row: dict[str, Any]) -> None:
        data, width, height = encode_smaller(decode(row["image"]["bytes"]), max_side=max_side)
        scale = width / row["width"]
        for region in row["regions"]:
            region.update({k: region[k] * scale for k in ("x0", "y0", "x1", "y1")})
        row["image"]["bytes"], row["width"], row["height"] = data, width, height

    identity = {"name": "random", "sha256": tokenizer_hash(clip), "context": 248}
    return write_random_dataset(
        folder,
        shape,
        seed=0,
        encode=TextTokenizer(clip).encode,
        tokenizer=identity,
        change=smaller if max_side else None,
    )


def _with_side(made: Ingredients, side: int) -> BatchLoader:
    """The loader, fitting images to another square than its model's."""
    loader = made.loader
    loader.config = replace(loader.config, side=side)
    return loader


def _bare(loader: BatchLoader, threads: int) -> Timing:
    """Time to decode and resize every image and crop of the dataset, bytes in memory."""
    shards = loader.shards
    rows = [
        group[i]
        for group in map(shards.read, range(len(shards.row_groups)))
        for i in range(len(group))
    ]

    def work() -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda row: decode_row(row, loader.config), rows):
                pass

    return _timed(work)


def _drain(loader: BatchLoader) -> None:
    for _ in loader.epoch(0):
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long something took; CPU seconds stay true on a machine that others use too."""

    wall_s: float
    cpu_s: float


def _timed(work: Callable[[], Any]) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing(wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)


def _memory_of(variant: str, arguments: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "glit.bench.train", "memory", "--variant", variant]
    command += ["--model", arguments.model, "--batch", str(arguments.batch)]
    command += ["--threads", str(arguments.threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout[done.stdout.index("{") :])["peak_mb"])


def _peak_mb() -> float:
    """Highest resident memory of this process, without what its parent had before it started."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_mb() -> float:
    import psutil

    return psutil.Process().memory_info().rss / 2**20


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "step": step_part,
    "loader": loader_part,
    "flat": flat_part,
    "gpu": gpu_part,
    "memory": memory_part,
}


if __name__ == "__main__":
    main()
