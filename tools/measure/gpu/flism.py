"""FLISM in glit: where the time of an image goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from glit.bench.harness import Row, note
from glit.bench.lism_flism.columns import COLUMNS, PARTS, total_s
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.inputs import with_sentences
from glit.bench.lism_flism.models import Models, made_by_glit, random_yolos, recipes_for
from glit.models.clip.random_clip import write_random_clip
from glit.runtime.cores import usable_cores
from tools.measure.gpu.bench import Bench, row

_PER_IMAGE = "ms/image"
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel")
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def measure(bench: Bench) -> Iterator[Row]:
    """Images a second, milliseconds by part, then what the GPU and the processor did in them."""
    sizes = bench.scale.sizes
    drawn = bench.scenes(32 if bench.is_full else 1)
    clip = write_random_clip(
        bench.scratch / "clip", sizes.clip, seed=0, corpus=drawn.captions(), vocabulary=900,
        embedding_rows=sizes.embedding_rows,
    )  # fmt: skip
    models = Models(
        recipes=recipes_for("random", bench.device),
        proposers={"flism": made_by_glit(random_yolos(sizes, bench.scratch / "yolos"))},
        matcher=made_by_glit(clip),
        num_fixed=sizes.num_fixed,
    )
    [column] = [each for each in COLUMNS if each.key == "flism-glit"]
    job = models.job(
        column, device=bench.device, threads=usable_cores(), scratch=bench.scratch / "out"
    )
    batch = with_sentences(drawn, models.matcher, models.recipes["flism"].split)
    number = len(batch.samples)
    flism = InGlit(job)
    flism.run(batch)
    best = min((flism.run(batch) for _ in range(bench.scale.repeats)), key=total_s)
    seconds = best["parts_s"]
    slowest = max(PARTS, key=seconds.__getitem__)
    yield row("FLISM in glit", number / total_s(best), "images/s", bottleneck=slowest)
    for part in PARTS:
        yield row(f"… {part}", 1000 * seconds[part] / number, _PER_IMAGE)
    yield from _profile(flism, batch, number)
    yield note(f"one process, chunks of {number} images of {sizes.scene_px} px, random weights")


def _profile(flism: InGlit, batch: Any, number: int) -> Iterator[Row]:
    """Kernels, copies and launches of a run; torch's profiler slows what it looks at."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=[each for each in activities if _can(each)]) as recorded:
        wall_s = total_s(flism.run(batch))
    events = recorded.key_averages()
    on_gpu = [each for each in events if each.device_type == torch.autograd.DeviceType.CUDA]
    copies = [each for each in on_gpu if each.key.startswith("Mem")]
    kernels_us = sum(each.self_device_time_total for each in on_gpu if each not in copies)
    copies_us = sum(each.self_device_time_total for each in copies)
    launches = sum(each.count for each in events if each.key.startswith(_LAUNCHES))
    waits_us = sum(each.self_cpu_time_total for each in events if each.key in _WAITS)
    operators_us = sum(each.self_cpu_time_total for each in events if each.key.startswith("aten::"))
    yield row("… kernels", kernels_us / 1000 / number, _PER_IMAGE)
    yield row("… copies", copies_us / 1000 / number, _PER_IMAGE)
    yield row("… launches", launches / number, "an image")
    yield row("… the processor waits for the GPU", waits_us / 1000 / number, _PER_IMAGE)
    yield row("… the processor in operators", operators_us / 1000 / number, _PER_IMAGE)
    python_s = wall_s - (waits_us + operators_us) / 1e6
    yield row("… the rest: Python, and the profiler", 1000 * python_s / number, _PER_IMAGE)
    yield row("… the GPU is busy", (kernels_us + copies_us) / 1e6 / wall_s, "of 1")
    heaviest = sorted(on_gpu, key=lambda each: -each.self_device_time_total)[:6]
    for each in heaviest:
        share = each.self_device_time_total / max(1.0, kernels_us + copies_us)
        yield note(f"{share:.0%} of the GPU's time: {each.key[:90]} ({each.count} times)")


def _can(activity: Any) -> bool:
    from torch.profiler import supported_activities

    return activity in supported_activities()
