"""Whole stages of a build, by the classes that a build uses."""

from __future__ import annotations

from collections.abc import Iterator

from glit.backends.weights import Resolved
from glit.bench.gpu.bench import Bench, largest, row
from glit.bench.harness import Row
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.inputs import Images, with_sentences
from glit.bench.lism_flism.job import COLUMNS, Batch, Job, Method, Result
from glit.runtime.cores import usable_cores
from glit.stages.recipe import load_recipe

NUM_GRID = 5


def opened(
    bench: Bench,
    method: Method,
    proposer: Resolved,
    matcher: Resolved,
    images: Images,
    *settings: str,
) -> tuple[InGlit, Batch]:
    """The stages of a method, their models loaded, and the images cut into sentences.

    Args:
        bench: the part.
        method: ``lism`` or ``flism``.
        proposer: SAM or YOLOS.
        matcher: CLIP.
        images: with captions.
        settings: of the recipe, as ``--set`` takes them.
    """
    on = [f"propose.device={bench.device}", f"score.device={bench.device}"]
    recipe = load_recipe(method, overrides=[*on, *settings])
    batch = with_sentences(images, matcher, recipe.split)
    fixed = bench.scale.sizes.num_fixed - (NUM_GRID if method == "flism" else 0)
    job = Job(
        column=next(c for c in COLUMNS if c.method == method and c.in_glit),
        recipe=recipe,
        proposer=proposer,
        matcher=matcher,
        batch=batch,
        device=bench.device,
        threads=usable_cores(),
        num_fixed=fixed,
        matrix_side=bench.scale.sizes.matrix_side,
        scratch=bench.scratch / "packed",
    )
    return InGlit(job), batch


def fastest(bench: Bench, stages: InGlit, batch: Batch, *, repeats: int = 2) -> Result:
    """The quickest pass after one that warms up."""
    stages.run(batch)
    bench.finish()
    return min((stages.run(batch) for _ in range(repeats)), key=lambda result: result.total_s)


def report_stages(bench: Bench, name: str, result: Result, num_images: int) -> Iterator[Row]:
    """Images a second of a pass, and in which of its parts the time went."""
    yield row(name, num_images / result.total_s, "images/s", bottleneck=largest(result.parts_s))
    decoding = num_images * usable_cores() / max(result.decode_s, 1e-9)
    yield row(
        f"{name}: decoding by {usable_cores()} threads", decoding, "images/s", bottleneck="cores"
    )
