"""The records that flow between stages: frozen dataclasses, validated at construction.

A sample starts as :class:`Sample` with its identity and size; each stage adds its own part
(:class:`Caption`, sentences, regions, :class:`Scores`, pairs) or answers with a :class:`Drop`.
All boxes are in pixels of the image after EXIF orientation, origin top-left, ends exclusive.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from glit.masking import masked

GRID_SOURCES = ("quadrant", "centre")
"""The values of ``Region.source`` for grid regions."""


_STORED = struct.Struct("<4f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An axis-aligned box whose right and lower edges are exclusive. ``x0 < x1`` and ``y0 < y1``
    hold for the numbers and for their float32 values, as which they are stored.

    >>> Box(x0=1, y0=2, x1=4, y1=6).area_px
    12
    """

    x0: float
    """Left edge, pixels."""
    y0: float
    """Top edge, pixels."""
    x1: float
    """Right edge, pixels, exclusive."""
    y1: float
    """Bottom edge, pixels, exclusive."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.x0, self.y0, self.x1, self.y1))):
            raise ValueError(f"box {self.xyxy} is not finite")
        if not (self.x0 < self.x1 and self.y0 < self.y1) or is_empty(self.xyxy):
            raise ValueError(f"box {self.xyxy} is empty: x0 < x1 and y0 < y1 are required")

    @property
    def xyxy(self) -> tuple[float, float, float, float]:
        return (self.x0, self.y0, self.x1, self.y1)

    @property
    def area_px(self) -> float:
        return (self.x1 - self.x0) * (self.y1 - self.y0)


def is_empty(box: Sequence[float]) -> bool:
    """Return whether nothing of a box, xyxy, is left in 32 bits a number.

    >>> is_empty((10, 0, 11, 9)), is_empty((10, 0, 10.0000001, 9))
    (False, True)
    """
    try:
        x0, y0, x1, y1 = _STORED.unpack(_STORED.pack(*box))
    except OverflowError:
        return True
    return not (x0 < x1 and y0 < y1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A candidate region of an image, and its source."""

    box: Box
    score: float
    """Confidence in [0, 1]; 1 for grid regions."""
    label: str
    """The detector's class name; the grid cell's name for grid regions; empty for SAM."""
    source: str
    """The proposer: ``yolos``, ``yolo``, ``sam``, ``quadrant``, ``centre``, ...; ``phrase`` for a
    box that a grounder added."""
    mask: str = ""
    """Its mask at the image's size, as COCO's compressed run lengths; empty where none is kept. In
    a dataset masks are a column of their own."""

    @property
    def is_grid(self) -> bool:
        """True for a cell of the grid, which no model proposed."""
        return self.source in GRID_SOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of a caption: ``caption[char_start:char_end] == text``."""

    text: str
    char_start: int
    char_end: int
    token_start: int
    """First token of the sentence in the tokenised caption; the start token counts as 0."""
    token_end: int
    """The place after the sentence's last token."""
    in_window: bool
    """True if the whole token span lies inside the stretched context (248)."""
    truncated: bool
    """True if the sentence alone overflows the short context (77) and is cut when embedded."""
    mean_logprob: float | None = None
    """Mean natural logarithm of the probabilities that the captioner gave the sentence's tokens;
    None for provided captions and for captioners that do not report it."""
    min_logprob: float | None = None
    """The lowest of them, of the least certain token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of a caption, as the captioner produced it."""

    char_end: int
    """The place after its last character in the caption; its first follows on the token before."""
    logprob: float
    """Natural logarithm of the captioner's probability of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """A long caption and its provenance."""

    text: str
    """NFC, whitespace preserved."""
    kind: str
    """The captioner's backend; ``provided`` for captions of the user."""
    model: str
    revision: str
    prompt_sha256: str
    """Hex digest of the prompt; empty for provided captions."""
    trimmed: bool = False
    """True if the token limit cut the caption, which then ends at its last whole sentence."""
    tokens: tuple[Token, ...] | None = None
    """The captioner's tokens; None if it does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Similarities of all sentences and regions of a sample."""

    similarity: Float[np.ndarray, "S R"]
    """CLIP cosines of sentences and regions, float32."""
    image_similarity: Float[np.ndarray, " S"]
    """CLIP cosines of the sentences and the whole image, float32."""
    phrase_similarity: Float[np.ndarray, "S R"] | None = None
    """CLIP cosines of the sentences' head phrases and regions, float32; None if not requested."""
    agreement: Float[np.ndarray, "S R"] | None = None
    """Confidence of the grounder that the region shows the sentence's head phrase, 0 to 1, float32;
    None without a grounder."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scores) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("similarity", "image_similarity", "phrase_similarity", "agreement")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A sentence and the region that a rule chose for it."""

    sentence: int
    """Index into the sample's sentences."""
    region: int
    """Index into the sample's regions."""
    similarity: float
    """CLIP cosine; 1 or 0 for pairs read from files."""
    global_wins: bool
    """The sentence has no region: the whole image matches it better (``lism``), or the pair is less
    probable than the recipe requires. ``region`` is then the best candidate."""
    probability: float | None = None
    """Probability that the sentence describes the region; None without a calibration."""
    support: float | None = None
    """Probability that the sentence is true of the image; None without a calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An image in the flow; later parts are None until their stage has run."""

    sample_id: str
    """SHA-256 of the image file's bytes, hex."""
    source_path: str
    """Path relative to the ingest root, ``/`` separated."""
    width: int
    """Pixels, after EXIF orientation."""
    height: int
    """Pixels, after EXIF orientation."""
    num_bytes: int
    """Size of the encoded image file."""
    twins: tuple[str, ...] = ()
    """Paths of files with the same bytes, whose captions and regions are the image's as well."""
    caption: Caption | None = None
    sentences: tuple[Sentence, ...] | None = None
    regions: tuple[Region, ...] | None = None
    scores: Scores | None = None
    pairs: tuple[Pair, ...] | None = None
    """Best pair first."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that further stages add, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A sample that was dropped, with the reason."""

    reason: str
    """A code of :data:`REASONS`, or one that the stage declares."""
    message: str
    """A line for a person."""
    attempt: int = 0
    """Number of earlier attempts on the sample."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", masked(" ".join(self.message.split()))[:500])


class DropError(Exception):
    """Raised by a backend for one sample that it cannot do; without a reason it is the stage's own
    for failures of its model.

    >>> DropError("content_filter", "the server's filter stopped the answer").reason
    'content_filter'
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


REASONS: dict[str, str] = {
    "unreadable": "the file could not be opened or read",
    "bad_name": "the file name is not valid UTF-8",
    "empty_file": "the file has no bytes",
    "not_an_image": "no decoder recognises the bytes",
    "unsupported_format": "a picture of a format that glit does not decode",
    "corrupt": "the image is truncated or damaged",
    "too_large": "more pixels than ingest.max_pixels, or a file of more than 1 GiB",
    "too_small": "a side shorter than ingest.min_side",
    "unsupported_mode": "pixels that have no defined conversion to RGB",
    "image_changed": "the file's bytes changed after ingest",
    "no_caption": "there is no caption for this image",
    "ambiguous_caption": "there are several different captions for this image",
    "empty_caption": "the caption has no words",
    "too_long": "the caption has more than 50,000 characters",
    "refusal": "the captioner declined to describe the image",
    "looping": "the caption repeats itself",
    "garbled_caption": "the caption has marks in place of words or characters",
    "wrong_language": "the caption is in another language than split.language",
    "captioner_error": "the captioner failed on this image",
    "content_filter": "a filter of the server stopped the answer",
    "no_sentence": "the caption holds no sentence",
    "no_annotation": "there are no readable regions or masks of this image",
    "bad_masks": "the mask or region file is damaged, or does not fit the image or its caption",
    "no_region": "no region passed the filters",
    "not_finite": "the model answered NaN or infinity",
    "model_error": "a model failed on this sample",
    "worker_crash": "the sample crashed its worker process, repeatedly",
    "timeout": "the sample hung its worker process, repeatedly",
    "not_selected": "glit select left it out",
    "no_picture": "glit attach found no picture of this sample",
    "ambiguous_picture": "glit attach found a picture that may be another sample's as well",
    "wrong_side": "the attached picture is mirrored or turned, and the caption names a side",
}
"""The reasons a sample can be dropped for; stages may declare more."""
