"""One configuration table per stage; the docstring under a field is its documentation.

These dataclasses import nothing heavy, so a recipe can be read anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glit.errors import RecipeError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]

_SPEED_ONLY = {"changes_results": False}


def _speed(default: Any) -> Any:
    """A field that changes how fast results come, not what they are."""
    return field(default=default, metadata=_SPEED_ONLY)


def identity(config: Any) -> dict[str, Any]:
    """The fields of a configuration that decide its results; what a fingerprint hashes."""
    return {
        f.name: getattr(config, f.name)
        for f in fields(config)
        if f.metadata.get("changes_results", True)
    }


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RecipeError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestConfig:
    """Which files become samples."""

    chunk_size: int = _speed(0)
    """Images in a chunk, the unit of work and of resumption. 0 is a sixteenth of the images,
    between 16 and 256, so that small jobs keep every worker busy."""
    max_pixels: int = 150_000_000
    """Images with more pixels are dropped as ``too_large`` before they are decoded."""
    min_side: int = 16
    """Images with a shorter side are dropped as ``too_small``."""
    near_duplicates: int = -1
    """Perceptual-hash bits (of 64) up to which two images count as the same; -1 turns it off."""

    def __post_init__(self) -> None:
        _need(self.chunk_size >= 0, f"[ingest] chunk_size: found {self.chunk_size}, want >= 0")
        _need(self.min_side >= 1, f"[ingest] min_side: found {self.min_side}, want >= 1")
        _need(
            -1 <= self.near_duplicates <= 16,
            f"[ingest] near_duplicates: found {self.near_duplicates}, want -1 (off) to 16 bits",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionConfig:
    """Where long captions come from."""

    backend: Literal["vllm", "endpoint", "transformers", "provided", "sidecar"] = "transformers"
    """``provided`` reads --captions FILE; ``sidecar`` reads NAME.txt beside the image."""
    model: str = "mini-captioner"
    """Name in manifests/weights.toml, a hub id, or a folder; for endpoints the served name."""
    revision: str = "main"
    """Hub revision of the model."""
    prompt: str = ""
    """A prompt file; empty takes glit's own (pipelines/prompts/describe.txt)."""
    max_tokens: int = 400
    """Longest caption in tokens; a longer one is trimmed to its last whole sentence."""
    temperature: float = 0.0
    """0 is greedy; a second try after a bad caption always samples, at 0.7."""
    batch_size: int = _speed(32)
    """Images in one generate call (transformers) or requests in flight (endpoint)."""
    max_image_side: int = 0
    """Images are shrunk to this longer side before captioning; 0 leaves them."""
    max_model_len: int = 4096
    """Context of the vLLM engine, image tokens included."""
    gpu_memory_utilization: float = _speed(0.9)
    """Share of the GPU's memory that the vLLM engine takes."""
    endpoint: str = _speed("http://127.0.0.1:8000/v1")
    """Base address of an OpenAI-compatible server."""
    api_key_env: str = _speed("OPENAI_API_KEY")
    """Environment variable that holds the endpoint's key; unset means no key."""
    timeout_s: float = _speed(120.0)
    """Longest wait for one endpoint answer."""
    retries: int = _speed(5)
    """How often a failed endpoint request is repeated, with growing waits."""
    device: Device = _speed("auto")
    """``auto`` takes a GPU when there is one."""
    precision: Precision = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU."""

    def __post_init__(self) -> None:
        _need(self.max_tokens >= 1, f"[caption] max_tokens: found {self.max_tokens}, want >= 1")
        _need(self.batch_size >= 1, f"[caption] batch_size: found {self.batch_size}, want >= 1")
        _need(self.temperature >= 0, f"[caption] temperature: found {self.temperature}, want >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """How captions become sentences, and which tokens those are."""

    splitter: Literal["sentencex", "punkt", "dot"] = "sentencex"
    """``punkt`` is NLTK's; ``dot`` splits at every full stop, as the papers' scripts do."""
    language: str = "en"
    """Language code for sentencex and Punkt."""
    tokenizer: str = ""
    """Model whose tokenizer gives the token spans; empty takes the matcher's."""
    context: int = 248
    """Window of the stretched text encoder; a span beyond it is not ``in_window``."""
    short_context: int = 77
    """A sentence longer than this alone is ``truncated`` when it is embedded."""

    def __post_init__(self) -> None:
        _need(
            3 <= self.short_context <= self.context,
            f"[split] short_context: found {self.short_context}, want 3 to context",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeConfig:
    """Which regions compete for a sentence."""

    backend: Literal["yolos+grid", "yolos", "yolo+grid", "yolo", "grid", "sam", "sa1b"] = (
        "yolos+grid"
    )
    """``yolos+grid`` is FLISM's, ``sam`` is LISM's; ``sa1b`` takes LISM's masks from NAME.json
    beside the image, as SA-1B ships them."""
    model: str = "mini-proposer"
    """Name in manifests/weights.toml, a hub id, or a folder or file."""
    revision: str = "main"
    """Hub revision of the model."""
    score_threshold: float = 0.5
    """Detections below this confidence are ignored."""
    min_area: float = 0.01
    """Smallest share of the image a region (with SAM: its mask) may cover."""
    max_area: float = 0.8
    """Largest share of the image a region (with SAM: its mask) may cover."""
    max_iou: float = 0.9
    """Of two detections that overlap more than this, the better scored one stays."""
    allow_pickle: bool = False
    """Load checkpoints that are pickles (ultralytics, segment-anything); they can run code."""
    max_regions: int = 30
    """Most regions per image; the grid always stays."""
    exact_masks: bool = False
    """SAM as segment-anything's own generator runs it, one image at a time in float32: the very
    same boxes, at about half the speed on a CPU."""
    compile: bool = _speed(False)
    """SAM's encoder through torch.compile: slow to start, worth it for many images on a GPU."""
    batch_size: int = _speed(8)
    """Images in one detector batch (YOLOS: always of one shape; SAM on a CPU: one)."""
    device: Device = _speed("auto")
    """``auto`` takes a GPU when there is one."""
    precision: Precision = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU; with SAM float32 everywhere."""

    def __post_init__(self) -> None:
        _need(
            0 <= self.min_area < self.max_area <= 1,
            f"[propose] min_area {self.min_area} and max_area {self.max_area}: "
            "want 0 <= min_area < max_area <= 1",
        )
        for name in ("score_threshold", "max_iou"):
            value = getattr(self, name)
            _need(0 <= value <= 1, f"[propose] {name}: found {value}, want 0 to 1")
        _need(self.max_regions >= 5, f"[propose] max_regions: found {self.max_regions}, want >= 5")
        if self.exact_masks:
            _need(
                self.precision in ("auto", "float32"),
                f"[propose] precision: found {self.precision!r}, but exact_masks are float32; "
                "leave one of the two out",
            )
            _need(
                not self.compile,
                "[propose] compile: exact_masks run segment-anything as it is; "
                "leave one of the two out",
            )
        _need(self.batch_size >= 1, f"[propose] batch_size: found {self.batch_size}, want >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchConfig:
    """Which model compares regions with sentences, and by which rule."""

    model: str = "mini-matcher"
    """A CLIP: name in manifests/weights.toml, a hub id, or a folder."""
    revision: str = "main"
    """Hub revision of the model."""
    global_competes: bool = False
    """LISM's rule: a sentence won by the whole image gives no local pair."""
    batch_size: int = _speed(128)
    """Crops or sentences in one encoder batch."""
    device: Device = _speed("auto")
    """``auto`` takes a GPU when there is one."""
    precision: Precision = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU."""

    def __post_init__(self) -> None:
        _need(self.batch_size >= 1, f"[match] batch_size: found {self.batch_size}, want >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """How the dataset's files are cut."""

    image_store: Literal["bytes", "path"] = "bytes"
    """``path`` leaves images where they are and stores only their paths."""
    max_side: int = 0
    """Larger images are re-encoded to this longer side, boxes moved with them; 0 is off."""
    min_files: int = 8
    """At least this many data files if there are as many samples: training workers want them."""
    max_file_mb: int = 400
    """Data files are closed before they grow beyond this."""
    row_group_rows: int = 100
    """Rows of a row group; fewer when images are large (a group stays under 100 MB)."""

    def __post_init__(self) -> None:
        _need(self.min_files >= 1, f"[pack] min_files: found {self.min_files}, want >= 1")
        _need(
            1 <= self.max_file_mb <= 480,
            f"[pack] max_file_mb: found {self.max_file_mb}, want 1 to 480",
        )
        _need(self.row_group_rows >= 1, "[pack] row_group_rows: want >= 1")
        _need(
            self.max_side == 0 or self.max_side >= 32,
            f"[pack] max_side: found {self.max_side}, want 0 or >= 32",
        )
        _need(
            not (self.max_side and self.image_store == "path"),
            "[pack] max_side: images that stay where they are cannot be made smaller; "
            "want image_store = 'bytes'",
        )
