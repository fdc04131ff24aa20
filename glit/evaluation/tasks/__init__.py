"""The evaluation tasks: one file each, from a model and a collection to named figures."""

from __future__ import annotations

from collections.abc import Callable

from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import Metrics
from glit.evaluation.tasks.boxes import boxes
from glit.evaluation.tasks.caption_quality import caption_quality
from glit.evaluation.tasks.choose import choose
from glit.evaluation.tasks.classify import classify
from glit.evaluation.tasks.hierarchy import hierarchy
from glit.evaluation.tasks.joint_map import joint_map
from glit.evaluation.tasks.localize import localize
from glit.evaluation.tasks.refer import refer
from glit.evaluation.tasks.retrieval import retrieval
from glit.evaluation.tasks.robustness import robustness
from glit.evaluation.tasks.segment import segment

TASKS: dict[str, Callable[[CollectionEmbedder, Collection, EvaluateConfig], Metrics]] = {
    "retrieval": retrieval,
    "joint-map": joint_map,
    "localize": localize,
    "robustness": robustness,
    "caption-quality": caption_quality,
    "hierarchy": hierarchy,
    "classify": classify,
    "choose": choose,
    "boxes": boxes,
    "refer": refer,
    "segment": segment,
}
"""By the name that the command line gives them."""
