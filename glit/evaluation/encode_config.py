"""The keys of ``[evaluate]`` that say how images and texts are read and encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from glit.plain import limited
from glit.recipes.config import RecipeTable

FitChoice = Literal["model", "resize", "centre-crop"]
DeviceChoice = Literal["auto", "cpu", "cuda", "mps"]
Splitter = Literal["sentencex", "punkt", "dot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeConfig(RecipeTable):
    """Settings for reading and encoding images and texts."""

    table: ClassVar[str] = "evaluate"

    context: int = limited(248, least=1)
    """Text window in tokens; shorter windows are stretched to it (Long-CLIP's rule)."""

    image_fit: FitChoice = "model"
    """``model`` fits images as the model's preprocessor does; the alternatives are ``resize`` and
    ``centre-crop``."""

    splitter: Splitter = "sentencex"
    """The sentence splitter for captions of annotation files; glit datasets contain their
    sentences."""

    caption: str = "long"
    """Which texts of a glit dataset ``retrieval`` and ``caption-quality`` measure: ``long`` is
    ``caption``; ``short`` or another kind takes the captions of that kind; ``all`` takes every
    caption, each a query of its own, and an image finds any of its own."""

    limit: int = limited(0, least=0)
    """Use only the first images, with all their boxes and questions; 0 is all."""

    image_root: str = ""
    """The folder that the dataset was built from; needed only if the dataset stores images by
    path."""

    batch_size: int = limited(64, least=1)
    """Images, or rows of texts, per encoder batch."""

    num_workers: int = limited(-1, least=-1)
    """Threads that read and decode images; -1 starts one per usable core; 0 decodes in the
    measuring thread."""

    device: DeviceChoice = "auto"
    """The device of the model; ``auto`` uses a GPU if there is one."""
