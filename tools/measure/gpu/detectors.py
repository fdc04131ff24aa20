"""YOLOS by batch, precision and how it is run; published detectors of today beside it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from glit.bench.harness import Row
from glit.bench.lism_flism.models import made_by_glit, random_yolos, recipes_for
from glit.recipes.config import Precision
from glit.stages.propose import ProposeStage
from tools.measure.gpu.bench import Bench, products_in, row

_BATCHES = (1, 2, 4, 16, 32, 64)
"""Images of a batch, beside the usual 8."""
_USUAL = 8
_PRECISIONS: tuple[tuple[Precision, str], ...] = (
    ("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", "tf32"), ("float32", "float32"),
)  # fmt: skip
"""That of the weights, and that of their products."""
OTHERS = {"D-FINE": "DFine", "RT-DETR v2": "RTDetrV2"}
"""Detectors that ``AutoModelForObjectDetection`` opens, and the beginning of their classes."""


def yolos(bench: Bench) -> Iterator[Row]:
    """Images a second of YOLOS-base: the network alone, then from pixels to boxes."""
    folder = random_yolos(bench.scale.sizes, bench.scratch / "yolos")
    usual = _USUAL if bench.is_full else 2
    images = bench.pixels(bench.scenes(usual))
    base = recipes_for("random", bench.device)["flism"].propose
    for precision, rate in _PRECISIONS:
        if bench.device == "cpu" and rate in ("tf32", "float16"):
            continue
        config = dataclasses.replace(base, precision=precision, batch_size=usual)
        backend = ProposeStage.backend(config)
        with products_in(rate):
            detector: Any = backend.make(backend.settled(config), made_by_glit(folder))
            one = detector.prepare(images[0])[None].to(detector.model.dtype)
            run = _run_of(detector.model)
            yield _network(bench, f"YOLOS, {rate}", run, one, rate, usual)
            yield bench.figure(
                f"YOLOS, {rate}, pixels to boxes", lambda d=detector: d.detect(images), repeats=1,
                number=len(images), unit="images/s", precision=rate, bottleneck="resizing",
            )  # fmt: skip
            if rate == "bfloat16":
                yield from _forms(bench, detector.model, one, usual)
                for size in _BATCHES if bench.is_full else _BATCHES[:1]:
                    yield _network(bench, f"YOLOS, {rate}", run, one, rate, size)
        del detector, run


def _run_of(model: Any) -> Callable[[Any], Any]:
    def run(batch: Any) -> Any:
        with torch.inference_mode():
            return model(pixel_values=batch).logits

    return run


def _network(
    bench: Bench, what: str, run: Callable[[Any], Any], one: Any, rate: str, size: int
) -> Row:
    batch = one.expand(size, *one.shape[1:]).contiguous()
    return bench.figure(
        f"{what}, batches of {size}", lambda: run(batch), number=size, unit="images/s",
        precision=rate, bottleneck="attention", repeats=2,
    )  # fmt: skip


def _forms(bench: Bench, model: Any, one: Any, number: int) -> Iterator[Row]:
    """The network with its channels last, as one CUDA graph, and compiled."""
    batch = one.expand(number, *one.shape[1:]).contiguous()
    size = {"number": number, "unit": "images/s"}
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    turned = batch.contiguous(memory_format=torch.channels_last)
    yield bench.tried(
        "YOLOS, bfloat16, channels last", lambda: _run_of(last), lambda run: run(turned), **size
    )
    yield bench.tried(
        "YOLOS, bfloat16, one CUDA graph", lambda: _graph(_run_of(model), batch),
        lambda graph: graph.replay(), **size,
    )  # fmt: skip
    yield bench.tried(
        "YOLOS, bfloat16, compiled", lambda: _run_of(torch.compile(model, backend=bench.compiler)),
        lambda run: run(batch), **size,
    )  # fmt: skip


def _graph(run: Callable[[Any], Any], batch: Any) -> Any:
    """All kernels of one run, recorded; ``replay`` launches them at once."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(batch)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(batch)
    return graph


def others(bench: Bench) -> Iterator[Row]:
    """Images a second of detectors of today, at the 640 x 640 px that they were trained at."""
    import transformers
    from transformers import AutoModelForObjectDetection

    side = 640 if bench.is_full else 128
    dtypes = (torch.bfloat16, torch.float16) if bench.is_full else (torch.float32,)
    small = {} if bench.is_full else {"decoder_layers": 2, "num_queries": 8}
    for name, prefix in OTHERS.items():
        config = getattr(transformers, f"{prefix}Config")(**small)
        for dtype in dtypes:
            precision = str(dtype).removeprefix("torch.")

            def opened(config: Any = config, dtype: torch.dtype = dtype) -> Any:
                with torch.device(bench.device):
                    model = AutoModelForObjectDetection.from_config(config)
                return _run_of(model.eval().to(dtype))

            for size in (_USUAL, 32) if bench.is_full else (1,):
                batch = torch.rand(size, 3, side, side, device=bench.device).to(dtype)
                yield bench.tried(
                    f"{name}, {precision}, batches of {size}", opened,
                    lambda run, batch=batch: run(batch), number=size, unit="images/s",
                )  # fmt: skip
    yield row("side of these images", side, "px")
