"""The evaluation tasks: one file each, declared once in :data:`TASKS`.

Help, documentation, checks and error messages follow from the declarations. Importing this module
loads no model library: functions are named as ``module:function``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A measurement of ``glit eval``."""

    run: Callable[..., Any] | str
    """A function of a ``CollectionEmbedder``, a ``Collection`` and an ``EvaluateConfig`` that
    returns figures by name, or a ``Measured``; or its name, ``module:function``."""
    about: str = ""
    """What it measures, in one line."""
    source: str = ""
    """The paper that defines it, or the benchmarks that it reads."""
    formats: tuple[str, ...] = ()
    """The values of ``--format`` that it knows, if it takes benchmarks as published; a task without
    any takes glit datasets, and captions as published."""
    open: str = "glit.evaluation.collection:open_collection"
    """``module:function`` that opens what it measures; takes the arguments of this default."""
    any_caption: bool = False
    """True if it measures captions of any kind; the others need the sentences of the long one."""
    takes: tuple[str, ...] = ()
    """Further keyword arguments of ``run``: ``neighbours``, ``false_sentences``."""

    def function(self) -> Callable[..., Any]:
        """``run`` itself, imported."""
        return pkgutil.resolve_name(self.run) if isinstance(self.run, str) else self.run


TASKS: dict[str, Task] = {
    "retrieval": Task(
        run="glit.evaluation.tasks.retrieval:retrieval",
        about="Recall@K of images by captions and captions by images",
        source="FAST-GOAL Tables III, IV",
        any_caption=True,
        takes=("neighbours",),
    ),
    "joint-map": Task(
        run="glit.evaluation.tasks.joint_map:joint_map",
        about="mAP@10 over whole images and best regions together",
        source="GOAL Tables 3, 4",
    ),
    "localize": Task(
        run="glit.evaluation.tasks.localize:localize",
        about="whether a sentence's most similar patches are in its region",
        source="FAST-GOAL Table XVI",
    ),
    "robustness": Task(
        run="glit.evaluation.tasks.robustness:robustness",
        about="retrieval with a false sentence in every caption",
        source="FAST-GOAL Table XVII",
        takes=("false_sentences",),
    ),
    "caption-quality": Task(
        run="glit.evaluation.tasks.caption_quality:caption_quality",
        about="mean cosine of image and caption over random pairs",
        source="FAST-GOAL Table I",
        any_caption=True,
    ),
    "hierarchy": Task(
        run="glit.evaluation.tasks.hierarchy:hierarchy",
        about="whether every added sentence makes a caption more similar",
        source="HiMo-CLIP, HiMo@K",
    ),
    "classify": Task(
        run="glit.evaluation.tasks.classify:classify",
        about="zero-shot classification of a folder of classes",
        source="CLIP, section 3.1.4",
        open="glit.evaluation.tasks.classify:open_classes",
    ),
    "choose": Task(
        run="glit.evaluation.tasks.choose:choose",
        about="the right one of several texts for an image or a box",
        source="FG-OVD, SugarCrepe, Winoground, ARO, VALSE, MMVP",
        formats=("fg-ovd", "sugarcrepe", "valse", "aro", "winoground", "mmvp"),
        open="glit.evaluation.tasks.choose:open_questions",
    ),
    "boxes": Task(
        run="glit.evaluation.tasks.boxes:boxes",
        about="zero-shot classification of annotated boxes",
        source="COCO, LVIS",
        formats=("coco", "lvis"),
        open="glit.evaluation.tasks.boxes:open_boxes",
    ),
    "refer": Task(
        run="glit.evaluation.tasks.refer:refer",
        about="the box that an expression means, among all of its image",
        source="RefCOCO, RefCOCO+, RefCOCOg",
        formats=("refcoco",),
        open="glit.evaluation.tasks.refer:open_expressions",
    ),
    "segment": Task(
        run="glit.evaluation.tasks.segment:segment",
        about="a class for every pixel, from patches alone",
        source="Pascal VOC, ADE20K",
        formats=("voc", "ade20k"),
        open="glit.evaluation.tasks.segment:open_segments",
    ),
}
"""By the name that the command line gives them."""
