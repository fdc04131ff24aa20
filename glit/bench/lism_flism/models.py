"""Which models the columns run: mini ones, full-size ones with random weights, or real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glit.backends.device import pick_device
from glit.backends.sam.model import MaskThresholds, build_sam, save_sam
from glit.backends.weights import Resolved, is_here, resolve
from glit.bench.lism_flism.job import Method, Sizes, Weights
from glit.bench.random_clip import write_random_clip
from glit.errors import WeightsError
from glit.images import Pixels
from glit.stages.plan import Recipe
from glit.stages.recipe import load_recipe

RECIPES: dict[Weights, dict[Method, str]] = {
    "mini": {"lism": "lism-mini", "flism": "mini"},
    "random": {"lism": "lism", "flism": "flism"},
    "manifest": {"lism": "lism", "flism": "flism"},
}
"""The recipes whose propose and score settings are measured."""

SHARE_PASSING = 0.68
"""Share of SAM's masks that pass its threshold of predicted IoU (0.88); random weights are
calibrated to it, so that as many masks reach the steps behind it as with trained ones. Measured
with MobileSAM's published weights on seven COCO photographs: 0.55 to 0.77 of the 3,072 masks of an
image, 0.68 on average."""

_VOCABULARY = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The recipe and the models of either method."""

    recipes: dict[Method, Recipe]
    proposers: dict[Method, Resolved]
    matcher: Resolved


def find_models(weights: Weights, device: str) -> Models:
    """The models that ``mini`` or the manifest's recipes name.

    Raises:
        WeightsError: one of them is not at hand.
    """
    settings = [f"propose.device={device}", f"score.device={device}"]
    recipes: dict[Method, Recipe] = {
        method: load_recipe(name, overrides=settings) for method, name in RECIPES[weights].items()
    }
    proposers: dict[Method, Resolved] = {
        method: _at_hand(recipe.propose.model) for method, recipe in recipes.items()
    }
    return Models(
        recipes=recipes,
        proposers=proposers,
        matcher=_at_hand(recipes["flism"].score.model),
    )


def at_hand() -> bool:
    """Whether the models of the papers' recipes are on this machine."""
    recipes = [load_recipe(name) for name in RECIPES["manifest"].values()]
    names = {recipe.propose.model for recipe in recipes} | {recipes[0].score.model}
    return all(is_here(name) for name in names)


def _at_hand(name: str) -> Resolved:
    try:
        return resolve(name)
    except WeightsError as error:
        raise WeightsError(
            f"--weights manifest: the model {name!r} is not at hand ({error}); for the speed "
            "alone take --weights random"
        ) from error


def make_random(
    sizes: Sizes, folder: Path, corpus: Sequence[str], first: Pixels, device: str
) -> Models:
    """Write models of these shapes with random weights.

    Args:
        sizes: shapes.
        folder: where; a few GB at full size.
        corpus: captions the tokenizer is learned from.
        first: an image on which SAM's threshold is calibrated.
        device: where to calibrate.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    clip = write_random_clip(
        folder / "clip",
        sizes.clip,
        seed=0,
        corpus=corpus,
        vocabulary=_VOCABULARY,
        embedding_rows=sizes.embedding_rows,
    )
    settings = [f"propose.device={device}", f"score.device={device}"]
    recipes: dict[Method, Recipe] = {
        method: load_recipe(name, overrides=settings) for method, name in RECIPES["random"].items()
    }
    return Models(
        recipes=recipes,
        proposers={
            "lism": made_by_glit(random_sam(sizes, folder / "sam", first, device)),
            "flism": made_by_glit(random_yolos(sizes, folder / "yolos")),
        },
        matcher=made_by_glit(clip),
    )


def made_by_glit(path: Path) -> Resolved:
    """A folder of random weights, as what a name resolves to."""
    return Resolved(name="random", path=path, revision="random", sha256="")


def random_yolos(sizes: Sizes, folder: Path) -> Path:
    """Write YOLOS with random weights."""
    import torch
    from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessor

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        YolosForObjectDetection(YolosConfig(**sizes.yolos)).cpu().save_pretrained(folder)
    edges = {"shortest_edge": sizes.shortest_px, "longest_edge": sizes.longest_px}
    YolosImageProcessor(size=edges).save_pretrained(folder)
    return folder


def random_sam(sizes: Sizes, folder: Path, first: Pixels, device: str) -> Path:
    """Write SAM with random weights, made on a device and calibrated there on an image."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.device(pick_device(device)):
        torch.manual_seed(0)
        sam: Any = build_sam(sizes.sam)
    sam = sam.half().float().to(pick_device(device))  # the values that the file will hold
    thresholds = MaskThresholds(
        points_per_side=sizes.points_per_side,
        pred_iou_thresh=calibrated_threshold(sam, first, sizes.calibration_side),
    )
    save_sam(sam.cpu(), sizes.sam, folder, thresholds=thresholds)
    return folder


def calibrated_threshold(sam: Any, image: Pixels, side: int) -> float:
    """The predicted IoU that :data:`SHARE_PASSING` of an image's masks exceed.

    Args:
        sam: a segment-anything model.
        image: what to look at.
        side: points along a side of the image.
    """
    import torch
    from segment_anything import SamPredictor
    from segment_anything.utils.amg import build_point_grid

    predictor = SamPredictor(sam)
    predictor.set_image(image)
    height, width = image.shape[:2]
    points = predictor.transform.apply_coords(
        build_point_grid(side) * (width, height), (height, width)
    )
    coordinates = torch.as_tensor(points, device=predictor.device, dtype=torch.float32)
    labels = torch.ones(len(points), dtype=torch.int, device=predictor.device)
    with torch.inference_mode():
        _, scores, _ = predictor.predict_torch(coordinates[:, None], labels[:, None])
    return float(np.quantile(scores.cpu().numpy(), 1 - SHARE_PASSING))
