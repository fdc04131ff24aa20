"""Choose the columns' models: mini ones, full-size ones with random weights, or real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glit.bench.lism_flism.columns import Column, ColumnJob, Method
from glit.bench.lism_flism.fixed import NUM_GRID
from glit.errors import WeightsError
from glit.images import Pixels
from glit.models.backends.sam.model import MaskThresholds, write_thresholds
from glit.models.clip.random_clip import TINY as TINY_CLIP
from glit.models.clip.random_clip import VIT_B_16, ClipShape, write_random_clip
from glit.models.device import pick_device
from glit.models.weights import Resolved, is_here, resolve
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.plan import Recipe

Weights = Literal["random", "mini", "manifest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shapes of the models that ``--weights random`` makes, and of what they are measured on."""

    sam: dict[str, Any]
    """Arguments of ``SamConfig``."""
    points_per_side: int
    """SAM's prompts along a side of the image."""
    yolos: dict[str, Any]
    """Arguments of ``YolosConfig``."""
    shortest_px: int
    """YOLOS' input: the shorter side is brought to this …"""
    longest_px: int
    """… unless the longer one would pass this."""
    clip: ClipShape
    embedding_rows: int
    """Token embeddings of CLIP's text encoder; 0 for those of the tokenizer made on the spot."""
    scene_px: int
    """Side of the scenes drawn when no photographs are given."""
    num_fixed: int = 30
    """Regions handed on for every image, since random weights propose nothing sensible."""
    calibration_side: int = 8
    """Points along a side of the image on which SAM's threshold is calibrated."""


FULL = Sizes(
    sam={
        "vision_config": {
            "hidden_size": 1280,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "global_attn_indexes": [7, 15, 23, 31],
        }
    },
    points_per_side=32,
    yolos={"image_size": [800, 1344], "use_mid_position_embeddings": True, "num_labels": 91},
    shortest_px=800,
    longest_px=1333,
    clip=VIT_B_16,
    embedding_rows=49_408,
    scene_px=1024,
)
"""The papers' models: SAM ViT-H, YOLOS-base, CLIP ViT-B/16 (FAST-GOAL, Table X)."""

TINY = Sizes(
    sam={
        "vision_config": {
            "image_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "global_attn_indexes": [],
            "window_size": 0,
            "use_rel_pos": False,
            "output_channels": 32,
            "num_pos_feats": 16,
        },
        "prompt_encoder_config": {"image_size": 64, "hidden_size": 32},
        "mask_decoder_config": {
            "hidden_size": 32,
            "mlp_dim": 32,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 32,
        },
    },
    points_per_side=4,
    yolos={
        "image_size": [64, 64],
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "num_detection_tokens": 5,
        "use_mid_position_embeddings": False,
    },
    shortest_px=64,
    longest_px=96,
    clip=TINY_CLIP,
    embedding_rows=0,
    scene_px=96,
    calibration_side=2,
)
"""Small enough for a test."""


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
    num_fixed: int | None = None
    """Regions of every image in the place of those of random weights."""

    def job(self, column: Column, *, device: str, threads: int, scratch: Path) -> ColumnJob:
        """The job of a column's process. FLISM adds its grid, so it gets fewer fixed regions."""
        grid = NUM_GRID if column.method == "flism" else 0
        recipe = self.recipes[column.method]
        if column.has_8_bits:
            models = {step: recipe.tables[step] for step in ("propose", "score")}
            small = {step: replace(table, precision="int8") for step, table in models.items()}
            recipe = replace(recipe, tables={**recipe.tables, **small})
        return ColumnJob(
            column=column,
            recipe=recipe,
            proposer=self.proposers[column.method],
            matcher=self.matcher,
            device=device,
            threads=threads,
            num_fixed=None if self.num_fixed is None else self.num_fixed - grid,
            scratch=scratch,
        )


def find_models(weights: Weights, device: str) -> Models:
    """The models that ``mini`` or the manifest's recipes name.

    Raises:
        WeightsError: one of them is not at hand.
    """
    recipes = recipes_for(weights, device)
    return Models(
        recipes=recipes,
        proposers={method: _at_hand(each.propose.model) for method, each in recipes.items()},
        matcher=_at_hand(recipes["flism"].score.model),
    )


def recipes_for(weights: Weights, device: str) -> dict[Method, Recipe]:
    """The recipes whose settings are measured, on a device."""
    settings = [f"propose.device={device}", f"score.device={device}"]
    return {
        method: load_recipe(name, overrides=settings) for method, name in RECIPES[weights].items()
    }


def at_hand() -> bool:
    """Return whether the models of the papers' recipes are on this machine."""
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
    return Models(
        recipes=recipes_for("random", device),
        proposers={
            "lism": made_by_glit(random_sam(sizes, folder / "sam", first, device)),
            "flism": made_by_glit(random_yolos(sizes, folder / "yolos")),
        },
        matcher=made_by_glit(
            write_random_clip(
                folder / "clip",
                sizes.clip,
                seed=0,
                corpus=corpus,
                vocabulary=_VOCABULARY,
                embedding_rows=sizes.embedding_rows,
            )
        ),
        num_fixed=sizes.num_fixed,
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
    from transformers import SamConfig

    from glit.bench.lism_flism.published_sam import build_published
    from glit.models.importers.sam import sam_model, sam_processor, sam_weights

    config = SamConfig(**sizes.sam)
    with torch.random.fork_rng(devices=[]), torch.device(pick_device(device)):
        torch.manual_seed(0)
        sam: Any = build_published(config)
    sam = sam.half().float().to(pick_device(device))  # the values that the file will hold
    thresholds = MaskThresholds(
        points_per_side=sizes.points_per_side,
        pred_iou_thresh=calibrated_threshold(sam, first, sizes.calibration_side),
    )
    sam_model(config, sam_weights(sam.cpu().state_dict())).half().save_pretrained(folder)
    sam_processor(config).save_pretrained(folder)
    write_thresholds(thresholds, folder)
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
