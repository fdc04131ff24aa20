"""What a stage asks of a model. One real backend per engine; fakes live in the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Float

from glit.geometry import Boxes
from glit.images import Pixels
from glit.records import CaptionKind, Region


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCaption:
    """What a captioner said, before any check."""

    text: str
    cut: bool
    """Whether the token limit ended it."""


class Captioner(Protocol):
    """Describes images in words."""

    kind: CaptionKind

    def caption(
        self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
    ) -> list[RawCaption]:
        """One caption per image; a temperature of 0 is greedy and ignores the seeds."""
        ...


class Detector(Protocol):
    """Proposes object regions."""

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        """Regions per image, best score first, boxes in the image's own pixels."""
        ...


class RegionReader(Protocol):
    """Takes regions from a text file that lies beside the image."""

    suffix: ClassVar[str]
    """The file is ``NAME`` and this suffix, beside ``NAME.jpg``."""

    def read(self, text: str, *, width: int, height: int) -> list[Region]:
        """Regions, best score first, boxes in pixels of the upright image.

        Raises:
            ValueError: the text is damaged, or belongs to another image.
        """
        ...


class Matcher(Protocol):
    """Embeds regions and sentences into one space."""

    def embed_regions(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes]
    ) -> list[Float[np.ndarray, "R D"]]:
        """Per image one L2-normalised float32 embedding per box."""
        ...

    def embed_sentences(self, sentences: Sequence[str]) -> Float[np.ndarray, "S D"]:
        """One L2-normalised float32 embedding per sentence; long ones are cut to the context."""
        ...
