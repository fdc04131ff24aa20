"""The options of every backend with a model, and the description of a backend that stages read."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from glit.errors import WeightsError
from glit.models.device import best_device, lacks_bfloat16, warn_if_slow
from glit.models.files import folder_of_file, model_type
from glit.models.weights import Resolved
from glit.recipes.config import Device, Precision, RecipeTable, require_value, speed_only

ConfigT = TypeVar("ConfigT", bound="ModelConfig")
Reads = Literal["pixels", "file", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(RecipeTable):
    """Options of every backend with a model; the configurations of stages inherit them."""

    model: str
    """Name in manifests/weights.toml, a hub id, a folder or a file."""
    revision: str = "main"
    """Hub revision of the model."""
    device: Device = speed_only("auto")
    """The device of the model; ``auto`` uses a GPU if there is one."""
    precision: Precision = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU, float16 on one that only emulates it; for
    SAM and YOLO, float32 everywhere. ``int8`` is for a CPU: captions by ``transformers``, regions
    by ``yolos``, and CLIP as a matcher."""

    def __post_init__(self) -> None:
        (default,) = [each.default for each in dataclasses.fields(self) if each.name == "model"]
        require_value(
            bool(self.model.strip()) or self.model == default,
            f"[{self.table}] model: is empty; is a variable of the shell unset?",
        )
        RecipeTable.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The description of a backend that stages and plans read without creating it.

    Each backend has one, in the module of its class.
    """

    make: Callable[..., Any]
    """Constructs the backend, in a worker; all backends of a stage take the same arguments."""
    reads: Reads = "pixels"
    """The part of a sample that it reads beside its record: decoded pixels, a text file beside the
    image, or nothing."""
    beside: str = ""
    """Suffix of that text file: with ``.txt``, NAME.txt is read beside NAME.jpg."""
    brings: Literal["", "captions", "regions"] = ""
    """The option of ``glit build`` whose file it reads."""
    measures_area: bool = False
    """Proposers: whether it applies ``min_area`` and ``max_area`` itself, to the areas of masks;
    the stage then does not apply them to the areas of boxes."""
    keeps_masks: bool = False
    """Proposers and grounders: whether they have masks, for ``keep_masks``."""
    embeds_dense: bool = False
    """Matchers: whether they have ``embed_dense``, for ``crop = "dense"``."""
    needs_model: bool = True
    """True if ``config.model`` names weights that it loads."""
    auto_precision: Mapping[str, Precision] = field(default_factory=lambda: {"cuda": "bfloat16"})
    """The precision for ``precision = "auto"``, by device; float32 for devices not listed."""
    float32_only: bool = False
    """True if its library computes in float32 whatever ``precision`` says."""
    has_int8: bool = False
    """True if ``precision = "int8"`` can be run, on a CPU."""
    process_bytes: int = 1_200_000_000
    """Memory of a worker in bytes, for libraries and activations; three times the size of the
    weights is added to it."""
    cpu_seconds: Callable[[Any, Resolved], float] | None = None
    """CPU seconds per image, by configuration and weights, of a model that takes many; they are
    shared by the cores. Builds on a CPU say so before they begin, show every image, one at a time,
    and keep what a chunk that is not finished has."""
    continuous: bool = False
    """Captioners: whether images are handed over one by one (``ContinuousCaptioner``) and two units
    of work at a time, so that an engine has the next images while the last of a unit are at work.
    """
    tells_logprobs: bool = False
    """Captioners: whether they say how probable each token was."""
    counts_tokens: bool = False
    """Captioners: whether they count the tokens of prompts and answers, for ``--max-tokens``."""
    gpu_bytes: int = 0
    """Memory on a GPU beside its weights, for batches at their defaults and CUDA itself: workers
    share a GPU if it has room for several. 0 where one worker wants the whole GPU."""
    gpus: Callable[[Any], int] = lambda config: 1
    """Number of GPUs that a worker holds together, by its configuration."""
    on_server: bool = False
    """Captioners: whether another machine does the work."""
    longest_wait_s: Callable[[Any], float] = lambda config: 0.0
    """Longest time in seconds that it may wait for a server and still go on, by its configuration.
    """
    keeps_process: bool = True
    """True if its process can be used for other stages afterwards; False for engines that do not
    free their memory or threads."""
    check: Callable[[Any, Resolved | None], None] | None = None
    """Raises a UserError for settings or weights that it cannot run with, before the first image
    is read. Takes the configuration and the resolved model."""
    reach: Callable[[Any], None] | None = None
    """Raises a UserError where the server that it needs does not answer; asked once, by the driver
    of a build, before the first image is read. Takes the configuration."""
    extras: tuple[str, ...] = ()
    """The extras that bring its engine."""
    options: type | None = None
    """A frozen dataclass of further keys in the stage's table; its instance is
    ``config.options``."""

    def is_slow(self, config: Any) -> bool:
        """Return whether a settled configuration runs :attr:`cpu_seconds` on a CPU."""
        return self.cpu_seconds is not None and config.device == "cpu"

    def settled(self, config: ConfigT, device: str = "") -> ConfigT:
        """The configuration with ``auto`` replaced by a device and a precision.

        Args:
            config: a :class:`ModelConfig`.
            device: for ``device = "auto"``; empty means the fastest device of this process.
        """
        device = config.device if config.device != "auto" else device or best_device()
        precision = config.precision
        if not self.needs_model or (self.float32_only and precision != "int8"):
            if precision not in ("auto", "float32"):
                where = f"{config.table}.precision = {precision!r}"
                float32 = "its model computes in float32"
                why = float32 if self.needs_model else "no model works in this step"
                warnings.warn(f"{where} is ignored: {why}", stacklevel=2)
            precision = "float32"  # no model: the fingerprint is the same on every machine
        elif precision == "auto":
            precision = self.auto_precision.get(device, "float32")
            if precision == "bfloat16" and lacks_bfloat16(device):
                where = f"{config.table}.precision"
                warnings.warn(
                    f"{where}: this GPU has no bfloat16, so 'auto' is float16", stacklevel=2
                )
                precision = "float16"
        else:
            require_value(
                precision != "int8" or (self.has_int8 and device == "cpu"),
                f"[{config.table}] precision = 'int8': only captions by 'transformers', regions by "
                "'yolos' and matchers 'clip' have it, on a CPU; use 'auto'",
            )
            warn_if_slow(precision, device, where="precision")
        return dataclasses.replace(config, device=device, precision=precision)


def refuse_other_kind(model: Resolved | None, types: Collection[str], *, loads: str) -> None:
    """Refuse a model that is no folder, or one whose config.json says that it is of another kind.

    Args:
        model: what the name resolved to.
        types: the values of ``model_type`` that the backend loads.
        loads: the backend and its kind of model, for the message.

    Raises:
        WeightsError: with what was found and what was wanted.
    """
    if model is None:
        return
    if model.path.is_file():
        raise WeightsError(
            f"model {model.name!r}: {model.path.name} is a single file, but {loads} as a folder "
            f"with config.json; {folder_of_file(model.path)}"
        )
    found = model_type(model.path)
    if found and found not in types:
        raise WeightsError(
            f"model {model.name!r}: its config.json says model_type {found!r}, but {loads} "
            f"({', '.join(map(repr, sorted(types)))}); name another model, or another backend"
        )


PLAIN_BYTES = 400_000_000
"""``process_bytes`` of a backend that loads no model library."""
