"""What a column of the benchmark is told, and what it answers. Everything here is picklable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from glit.backends.sam.model import PRESETS, SamConfig
from glit.backends.weights import Resolved
from glit.bench.random_clip import TINY as TINY_CLIP
from glit.bench.random_clip import VIT_B_16, ClipShape
from glit.data.records import Sample
from glit.stages.recipe import Recipe
from glit.storage.store import Store

Method = Literal["lism", "flism"]
Weights = Literal["random", "mini", "manifest"]
XYXY = tuple[float, float, float, float]

PARTS: tuple[str, ...] = ("wait", "propose", "encode", "match", "write")
"""What a column's total is made of; ``wait`` is decoding that nothing else overlapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One way of making local pairs."""

    key: str
    method: Method
    in_glit: bool
    """Whether glit's stages do it; otherwise one image after the other, as the papers' scripts."""
    title: str


COLUMNS: tuple[Column, ...] = (
    Column(key="lism-one", method="lism", in_glit=False, title="LISM one at a time"),
    Column(key="lism-glit", method="lism", in_glit=True, title="LISM in glit"),
    Column(key="flism-one", method="flism", in_glit=False, title="FLISM one at a time"),
    Column(key="flism-glit", method="flism", in_glit=True, title="FLISM in glit"),
)
"""In the order of tables and of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shapes of the models that ``--weights random`` makes, and of what they are measured on."""

    sam: SamConfig
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
    matrix_side: int = 4096
    """Side of the matrix product whose rate gives the floor."""


FULL = Sizes(
    sam=PRESETS["vit_h"],
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
    sam=SamConfig(
        image_size=64,
        patch_size=16,
        embed_dim=32,
        depth=1,
        num_heads=2,
        global_attn_indexes=(),
        window_size=0,
        use_rel_pos=False,
        prompt_dim=32,
        decoder_mlp_dim=32,
        decoder_num_heads=2,
        iou_head_dim=32,
    ),
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
    matrix_side=64,
)
"""Small enough for a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Images of one pass."""

    images: Store
    samples: tuple[Sample, ...]
    """With caption and sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a column's process needs."""

    column: Column
    recipe: Recipe
    """Its propose, score, pair and pack tables count."""
    proposer: Resolved
    matcher: Resolved
    batch: Batch
    device: str
    threads: int
    num_fixed: int | None
    """Regions handed on instead of the proposer's own; None takes what it proposes."""
    matrix_side: int
    scratch: Path
    """Where the column writes; removed with the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One pass."""

    batch: Batch
    watch_device: bool = False
    """Record the kernels of the GPU; such a pass is not timed."""


CROP = "CLIP, a crop"
"""Name of a crop's operations among those of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Measured speed of a large matrix product."""

    precision: str
    operations_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a column knows of its models once they are loaded; each way knows its own half."""

    parameters: dict[str, int] = field(default_factory=dict)
    """``proposer`` and ``clip``."""
    operations: dict[str, float] = field(default_factory=dict)
    """An image of each part of the proposer, and under :data:`CROP` those of a crop."""
    rates: dict[str, Rate] = field(default_factory=dict)
    """What the device reaches in the precision of each of these parts."""

    def at_best(self, other: Facts) -> Facts:
        """The same with the better of two measurements of each rate."""
        rates = {
            part: max(rate, other.rates[part], key=lambda each: each.operations_per_s)
            for part, rate in self.rates.items()
        }
        return replace(self, rates=rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a way of working did with a batch."""

    parts_s: dict[str, float]
    """Seconds by :data:`PARTS`, over all images; together they are the total."""
    decode_s: float
    """Seconds decoders were at work; more than ``wait`` where threads decode ahead."""
    num_proposed: int
    """Regions the proposer itself gave."""
    num_regions: int
    """Regions that competed, the whole image of LISM not counted."""
    num_dropped: int
    """Images without any region."""
    choices: tuple[tuple[XYXY | None, ...], ...]
    """For each image the chosen box of each sentence; None where there is none (global wins)."""

    @property
    def total_s(self) -> float:
        return sum(self.parts_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A result, and what it took of the machine."""

    result: Result
    num_images: int
    cpu_s: float
    """CPU seconds of the process, all threads."""
    device_s: float | None
    """Seconds in which the GPU ran a kernel, in a pass that watched it."""
    peak_host_mb: float
    """Highest resident memory of the process so far."""
    peak_device_mb: float | None
    """Highest memory allocated on the GPU so far; None on a CPU."""
