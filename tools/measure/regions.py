"""How many of a dataset's boxes a proposer finds: ``python -m tools.measure.regions DATASET``.

A box that a sentence has counts as found where a proposed region overlaps it with an IoU of at
least 0.5 (or 0.75).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from glit.data.geometry import Boxes, iou
from glit.data.records import Drop, Region, Sample
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.models.backends.base import ModelConfig
from glit.models.device import best_device
from glit.models.weights import resolve
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes.extras import require
from glit.runtime.tables import Page, Table, figure, markdown
from glit.stages.plan import Recipe
from glit.stages.propose import DetectRegions, LayRegions, ProposeConfig, ProposeStage
from tools.measure.console import ended, say

IOUS = (0.5, 0.75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a proposer found of an image's boxes."""

    path: str
    best_iou: tuple[float, ...]
    """For each annotated box, its highest IoU with a proposed region."""
    num_regions: int
    seconds: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.regions", description=__doc__)
    parser.add_argument("dataset", help="with known pairs, such as that of glit sample")
    parser.add_argument("-r", "--recipe", required=True, help="its table propose is measured")
    parser.add_argument("--set", action="append", default=[], help="table.key=value; repeatable")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    recipe = load_recipe(given.recipe, overrides=given.set)
    found = measure(Dataset(given.dataset), recipe, say)
    print(json.dumps(as_dict(found)) if given.json else markdown(page(found)))


def measure(dataset: Dataset, recipe: Recipe, progress: Callable[[str], None]) -> list[Found]:
    """Propose regions for every image of a dataset and compare them with the boxes of its pairs.

    Args:
        dataset: whose pairs are known to be right, such as ``glit sample``'s.
        recipe: its table ``[propose]`` is used.
        progress: called with a line for every image.

    Raises:
        InputError: the proposer reads files beside the images, or no sentence has a box.
        UserError: the model is missing or of another kind.
    """
    config = recipe.of(ProposeConfig)
    backend = ProposeStage.backend(config)
    if backend.reads == "file":
        raise InputError(f"propose.backend = {config.backend!r} reads files beside the images; "
                         "name a model's backend")  # fmt: skip
    for extra, purpose in ProposeStage.extras(recipe).items():
        require(extra, needed_for=purpose)
    model = resolve(config.model, config.revision) if backend.needs_model else None
    settled: ModelConfig = backend.settled(config, best_device())
    if backend.check is not None:
        backend.check(settled, model)
    kind = DetectRegions if backend.reads == "pixels" else LayRegions
    stage = kind(settled, backend.make(settled, model))
    found = []
    for number, row in enumerate(dataset.rows(), start=1):
        progress(f"{row.source_path} ({number} of {len(dataset)})")
        start = time.perf_counter()
        sample = Sample(
            sample_id=row.sample_id, source_path=row.source_path, width=row.width,
            height=row.height, num_bytes=len(row.encoded()),
        )  # fmt: skip
        images: Any = SimpleNamespace(each=lambda _, row=row: iter([row.pixels()]))
        [outcome] = stage.process([sample], images)
        regions = () if isinstance(outcome, Drop) else outcome.regions or ()
        wanted = sorted({pair.region for pair in row.pairs if not pair.global_wins})
        best = iou(_boxes(row.regions[index] for index in wanted), _boxes(regions))
        found.append(
            Found(
                path=row.source_path,
                best_iou=tuple(best.max(axis=1, initial=0.0).tolist()),
                num_regions=len(regions),
                seconds=time.perf_counter() - start,
            )
        )
    if not any(each.best_iou for each in found):
        raise InputError(f"{dataset.path}: no sentence has a box to find")
    return found


def _boxes(regions: Iterable[Region]) -> Boxes:
    return np.array([r.box.xyxy for r in regions], dtype=np.float64).reshape(-1, 4)


def as_dict(found: Sequence[Found]) -> dict[str, Any]:
    """The figures over all images; recall is a share of 1."""
    best = np.array([value for each in found for value in each.best_iou])
    return {
        "boxes": len(best),
        **{f"recall@{limit}": float((best >= limit).mean()) for limit in IOUS},
        "mean_best_iou": float(best.mean()),
        "regions_per_image": float(np.mean([each.num_regions for each in found])),
        "seconds_per_image": float(np.median([each.seconds for each in found])),
    }


def page(found: Sequence[Found]) -> Page:
    """A table of the images, and the figures over all of them."""
    rows = [
        [
            each.path,
            str(len(each.best_iou)),
            *(str(sum(value >= limit for value in each.best_iou)) for limit in IOUS),
            str(each.num_regions),
            figure(each.seconds),
        ]
        for each in found
    ]
    total = as_dict(found)
    said = ", ".join(f"{100 * total[f'recall@{limit}']:.0f} % at IoU {limit}" for limit in IOUS)
    heads = ["image", "boxes", *(f"found at {limit}" for limit in IOUS), "regions", "s"]
    return [
        Table(heads=heads, rows=rows),
        f"recall of {total['boxes']} boxes: {said}; mean best IoU {total['mean_best_iou']:.2f}; "
        f"{total['regions_per_image']:.0f} regions and {figure(total['seconds_per_image'])} s an "
        "image (median)",
    ]


if __name__ == "__main__":
    ended(main)
