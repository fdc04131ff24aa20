"""The interfaces between stages and backends: configurations, protocols, results."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from jaxtyping import Float

from glit.data.captions import KIND_RULE, are_kinds
from glit.data.geometry import Boxes
from glit.data.records import Drop, Region, Token
from glit.images import Pixels
from glit.models.backends.base import ModelConfig
from glit.plain import limited
from glit.recipes.config import Fields, require_value, speed_only
from glit.text.structured import Keys

SAMPLING = ("repetition_penalty", "top_p", "top_k", "min_p")
"""The keys of the recipe that a model's generation_config.json has too."""
_OWN_FIELDS = ("messages", "model", "n", "stream", "response_format")
_SECRET_FIELD = re.compile(r"(?i)api[-_]?key|authorization|password|secret|(^|[-_])token$")
ReadText = Callable[[str], str | None]
"""A small text file among the images, by its path; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConfig(ModelConfig):
    """Settings of models that write text: captions of images, or texts from texts."""

    max_tokens: int = limited(400, least=1)
    """Longest answer in tokens. A caption that is cut is trimmed to its last whole sentence; any
    other answer that is cut is asked for once more."""
    batch_size: int = speed_only(32, least=1)
    """Images per generate call (transformers) or requests in flight (endpoint); vLLM schedules its
    own batches."""
    max_model_len: int = 4096
    """Context of the vLLM engine, image tokens included."""
    gpu_memory_utilization: float = speed_only(0.9)
    """Share of the GPU's memory for the vLLM engine."""
    endpoint: str = speed_only("http://127.0.0.1:8000/v1")
    """Base address of an OpenAI-compatible server."""
    api_key_env: str = speed_only("OPENAI_API_KEY")
    """Environment variable with the endpoint's key; if it is unset, no key is sent."""
    timeout_s: float = speed_only(120.0, above=0)
    """Longest wait for one answer of the endpoint, to its end, in seconds."""
    retries: int = speed_only(5, least=0)
    """Retries of a failed endpoint request, with growing waits."""
    structured: bool = False
    """Make ``vllm`` and ``endpoint`` answer with JSON, ``{"caption": "..."}``, and keep its text:
    for models that put remarks around their captions."""
    repetition_penalty: float = limited(-1.0, above=0, also=-1)
    """Above 1, tokens that were written before become less probable. This key and the next three
    are alike in all backends; -1 takes what the model's generation_config.json says, or the
    server's own."""
    top_p: float = limited(-1.0, above=0, most=1, also=-1)
    """For sampled captions: take tokens from the fewest that have this probability together."""
    top_k: int = limited(-1, least=0, also=-1)
    """For sampled captions: take tokens from so many of the most probable ones; 0 from all."""
    min_p: float = limited(-1.0, least=0, most=1, also=-1)
    """For sampled captions: take tokens that are at least this share as probable as the first."""
    request: Fields = Fields()
    """Further fields of every request to ``endpoint``, as in ``request = {max_completion_tokens =
    400, max_tokens = ""}``; an empty text leaves out a field that glit sends. No keys: the manifest
    holds them."""

    def check(self) -> None:
        if not self.request:
            return
        where, backend = f"[{self.table}] request", getattr(self, "backend", "endpoint")
        require_value(backend == "endpoint", f"{where}: {backend!r} is no server; leave it out")
        for key in self.request:
            require_value(key not in _OWN_FIELDS, f"{where}: {key!r} is set by glit; leave it out")
            require_value(
                not _SECRET_FIELD.search(key),
                f"{where}: {key!r} looks like a key, which the manifest would hold; put it into "
                f"the environment variable that {self.table}.api_key_env names",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionerConfig(WriterConfig):
    """Settings of captioning models."""

    table: ClassVar[str] = "caption"
    model: str = "mini-captioner"
    """The model: a name in manifests/weights.toml, a hub id, or a folder; for endpoints the served
    name."""
    max_image_side: int = 0
    """Shrink images to this longer side before captioning; 0 keeps their size. ``transformers`` and
    ``vllm`` also keep models that enlarge images (SmolVLM, Idefics3) from going beyond it."""
    kinds: tuple[str, ...] = ()
    """The kinds of captions of every image, kept in a column ``captions``; the first is
    ``caption``. A model is asked for each of them: ``long``, ``short``, or KIND.txt beside the file
    of ``prompt``. Empty writes one; of ``provided`` it takes all kinds of a file in which images
    have several, ``long`` first."""

    def check(self) -> None:
        WriterConfig.check(self)
        require_value(
            are_kinds(self.kinds),
            f"[caption] kinds: found {list(self.kinds)}, want different names, {KIND_RULE}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCaption:
    """A captioner's output, unchecked."""

    text: str
    cut: bool
    """True if generation stopped at ``max_tokens``."""
    tokens: tuple[Token, ...] | None = None
    """The tokens of the text, where the backend says how probable each was."""
    control_tokens: tuple[str, ...] = ()
    """The tokens of the model's tokenizer that are no text, where it is known."""


class Usage(NamedTuple):
    """What a model has used."""

    tokens: int = 0
    """Of prompts and of answers."""
    requests_repeated: int = 0
    """Requests that were sent again because the server did not answer them."""


class Meter:
    """Counts the tokens and the repeated requests of a captioner; thread-safe.

    >>> meter = Meter()
    >>> meter.add(tokens=700), meter.add(tokens=65), meter.add(requests_repeated=1)
    (None, None, None)
    >>> meter.take(), meter.take()
    (Usage(tokens=765, requests_repeated=1), Usage(tokens=0, requests_repeated=0))
    """

    def __init__(self) -> None:
        self._lock, self._used = threading.Lock(), Usage()

    def add(self, *, tokens: int = 0, requests_repeated: int = 0) -> None:
        """Count further tokens and requests."""
        with self._lock:
            before = self._used
            self._used = Usage(before.tokens + tokens, before.requests_repeated + requests_repeated)

    def take(self) -> Usage:
        """Return what was counted since it was last called."""
        with self._lock:
            used, self._used = self._used, Usage()
        return used


def usage_of(captioner: object) -> Usage:
    """Return what a captioner has used since this was last asked; nothing if it does not count (it
    then has no ``meter``)."""
    meter = getattr(captioner, "meter", None)
    return meter.take() if isinstance(meter, Meter) else Usage()


class Captioner(Protocol):
    """Generates captions from pixels. One that counts its tokens has a :class:`Meter` as ``meter``,
    which its views share."""

    def asking(self, prompt: str) -> Captioner:
        """Return a view of this model with another prompt; it is valid as long as this model."""
        ...

    def caption(
        self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
    ) -> list[RawCaption]:
        """Write one caption per image; a temperature of 0 is greedy and ignores the seeds."""
        ...


class ContinuousCaptioner(Protocol):
    """Answers images as they come, many at a time, each when it is done; thread-safe."""

    def asking(self, prompt: str, keys: Keys | None = None) -> Self:
        """Return a view of this model with another prompt; it is valid as long as this model.

        Args:
            prompt: what it is asked.
            keys: those of the JSON object that it must answer with, and maybe which texts are
                allowed; () for plain text, None to keep the current setting.
        """
        ...

    def submit(self, image: Pixels | None, *, seed: int, temperature: float) -> Future[RawCaption]:
        """Submit an image, or the prompt alone; block only while the queue is full."""
        ...


class CaptionLookup(Protocol):
    """Looks up captions that exist already."""

    name: str
    """Goes into ``caption_source.model``."""
    strips: bool
    """True if it removes whitespace before and after each caption."""

    def find(
        self, paths: Sequence[str], read_text: ReadText
    ) -> Sequence[str | Mapping[str, str] | Drop]:
        """Return for every image path a caption, several by kind, or a drop with its reason."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerConfig(ModelConfig):
    """Options of proposers."""

    table: ClassVar = "propose"
    model: str = "mini-proposer"
    """The model: a name in manifests/weights.toml, a hub id, a folder, or a file."""
    score_threshold: float = limited(0.5, least=0, most=1)
    """Detections below this confidence are ignored."""
    min_area: float = 0.01
    """Smallest share of the image a region (with SAM: its mask) may cover."""
    max_area: float = 0.8
    """Largest share of the image a region (with SAM: its mask) may cover."""
    max_regions: int = limited(30, least=5)
    """Most regions per image; grid regions are always kept."""
    keep_masks: bool = False
    """Keep the masks of regions as run lengths, in a column ``masks``; for SAM, SA-1B's files and
    files of your own."""
    allow_pickle: bool = False
    """Allow checkpoints that are pickles (ultralytics); pickles can run code."""
    exact_masks: bool = False
    """Run SAM's decoder as transformers has it, one image at a time in float32: the boxes of
    segment-anything's generator, at a quarter of the speed on a CPU."""
    compile: bool = speed_only(False)
    """Compile SAM's encoder with torch.compile: slow to start, worth it for many images on a
    GPU."""
    batch_size: int = speed_only(8, least=1)
    """Images per detector batch (YOLOS: all of one shape; SAM on a CPU: one)."""

    def check(self) -> None:
        require_value(
            0 <= self.min_area < self.max_area <= 1,
            f"[propose] min_area {self.min_area} and max_area {self.max_area}: "
            "want 0 <= min_area < max_area <= 1",
        )


class Detector(Protocol):
    """Proposes regions from pixels."""

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        """Regions per image, best score first, boxes in the image's own pixels."""
        ...


class RegionReader(Protocol):
    """Reads regions from a text file beside the image."""

    def read(
        self, text: str, *, width: int, height: int, orientation: Callable[[], int] = ...
    ) -> list[Region]:
        """Regions, best score first, boxes in pixels of the upright image.

        Args:
            text: of the file.
            width: of the upright image, pixels.
            height: of the upright image, pixels.
            orientation: reads the EXIF orientation of the image file, for boxes of a picture whose
                width and height are swapped.

        Raises:
            ValueError: the text is damaged, or belongs to another image.
        """
        ...


class RegionLayout(Protocol):
    """Computes regions from the size of the image alone."""

    def regions(self, *, width: int, height: int) -> list[Region]:
        """Regions of an image of ``width`` x ``height`` pixels, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GrounderConfig(ModelConfig):
    """Options of grounders."""

    table: ClassVar = "ground"
    model: str = "llmdet-tiny"
    """The detector: a name in manifests/weights.toml, a hub id, or a folder."""
    threshold: float = limited(0.3, least=0, most=1)
    """Detections below this score are ignored."""
    nms_iou: float = limited(0.5, least=0, most=1)
    """Largest IoU of two boxes of a phrase that both stay; of two with more, the surer one stays.
    """
    max_boxes: int = limited(5, least=1)
    """Most boxes of a phrase."""
    keep_masks: bool = False
    """Keep the masks of the regions that are added, in the column ``masks``; for SAM 3."""
    batch_size: int = speed_only(8, least=1)
    """Images in one batch of OWL; phrases of one image in one batch of SAM 3."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhraseDetections:
    """Detections of a phrase in an image, best first."""

    boxes: Boxes
    """xyxy pixels [N, 4], inside the image."""
    scores: Float[np.ndarray, " N"]
    """0 to 1."""
    masks: tuple[str, ...] = ()
    """With ``keep_masks`` the mask of every box as COCO's compressed run lengths, at the image's
    size; else none."""


class Grounder(Protocol):
    """Finds phrases in images."""

    def find(
        self, images: Sequence[Pixels], phrases: Sequence[Sequence[str]]
    ) -> list[list[PhraseDetections]]:
        """Return for each image the detections of each of its phrases, in their order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MatcherConfig(ModelConfig):
    """Options of matchers."""

    table: ClassVar = "score"
    model: str = "mini-matcher"
    """The model: a name in manifests/weights.toml, a hub id, or a folder."""
    batch_size: int = speed_only(128, least=1)
    """Crops or sentences in one encoder batch."""


class Matcher(Protocol):
    """Embeds image regions and sentences into one space."""

    def embed_regions(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes]
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Return for each image [R, D]: L2-normalised float32 embeddings of its R boxes."""
        ...

    def embed_dense(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes], *, scale: float
    ) -> list[Float[np.ndarray, "_ _"]]:
        """For each image [R + 1, D]: of each box and of the whole image, by one pass over it, whose
        side is so many times the model's own. Only backends that declare ``embeds_dense`` need it.
        """
        ...

    def embed_sentences(self, sentences: Sequence[str]) -> Float[np.ndarray, "S D"]:
        """[S, D]: an L2-normalised float32 embedding for each sentence, cut to the context."""
        ...
