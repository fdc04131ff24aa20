"""The measurements, one file each: each takes a model and a collection and names its numbers."""

from __future__ import annotations

from collections.abc import Callable

from glit.evaluate.collection import Collection
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.metrics import Metrics
from glit.evaluate.tasks.caption_quality import caption_quality
from glit.evaluate.tasks.classify import classify
from glit.evaluate.tasks.joint_map import joint_map
from glit.evaluate.tasks.localize import localize
from glit.evaluate.tasks.retrieval import retrieval
from glit.evaluate.tasks.robustness import robustness

TASKS: dict[str, Callable[[Embedder, Collection, EvaluateConfig], Metrics]] = {
    "retrieval": retrieval,
    "joint-map": joint_map,
    "localize": localize,
    "robustness": robustness,
    "caption-quality": caption_quality,
    "classify": classify,
}
"""By the name that the command line gives them."""
