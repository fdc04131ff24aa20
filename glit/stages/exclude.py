"""Exclude: drop images of evaluation sets, before anything is paid for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float32

from glit.data.records import Drop, Sample
from glit.data.reference_list import ReferenceList
from glit.data.resemblance import thumbnail
from glit.errors import InputError
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.clip.opening import open_embedder
from glit.models.device import best_device
from glit.plain import limited
from glit.recipes.config import (
    Device,
    Precision,
    RecipeTable,
    file_name,
    require_value,
    speed_only,
)
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.image_source import ImageSource, loaded_batches
from glit.stages.plan import Plan, Recipe
from glit.storage.store import Store

if TYPE_CHECKING:
    from glit.models.clip.embedder import Embedder

_BATCH = 64
LEAST_COSINE = 0.95
_MOST_BYTES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeConfig(RecipeTable):
    """Images that must not be in the dataset."""

    table: ClassVar = "exclude"
    enabled: bool = False
    """True drops images of ``lists`` as ``in_evaluation``: the same file, and the same picture
    re-encoded, resized, recoloured, turned, mirrored, cropped to 80 %, or cropped so in the list.
    """
    lists: tuple[str, ...] = file_name(())
    """Files that ``glit overlap`` wrote, paths or addresses that all workers can read."""
    model: str = ""
    """Also drop images whose embedding by this model resembles one of the lists', which were
    written with ``glit overlap --model``: a name in manifests/weights.toml, a hub id, or a
    folder. Empty compares no embeddings."""
    revision: str = "main"
    """Hub revision of the model."""
    cosine: float = limited(LEAST_COSINE, above=0, most=1)
    """The cosine of two embeddings from which images mean the same."""
    device: Device = speed_only("auto")
    """The device of the model; ``auto`` uses a GPU if there is one."""

    @property
    def precision(self) -> Precision:
        """The precision of the model; that of the lists' embeddings."""
        return "float32"

    def check(self) -> None:
        require_value(
            bool(self.model) or self.cosine == LEAST_COSINE,
            "[exclude] cosine: is of embeddings; name the lists' model with exclude.model",
        )
        require_value(
            bool(self.lists) or not self.enabled,
            "[exclude] lists: found none, want files that 'glit overlap' wrote",
        )


class _Embedding(Backend):
    """Its configuration has no precision to settle."""

    def settled(self, config: Any, device: str = "") -> Any:
        found = config.device if config.device != "auto" else device or best_device()
        return replace(config, device=found)


def _open_model(config: ExcludeConfig, name: str) -> Embedder:
    return open_embedder(name, needed_for="exclude.model", device=config.device)


EMBEDDING = _Embedding(make=_open_model, gpu_bytes=6 << 30, extras=("models",))


class ExcludeStage(Stage):
    """Compares every image with lists of others."""

    name = "exclude"
    version = 2
    reads = ("image",)
    filters = True
    reasons: ClassVar = {"in_evaluation": "the image is in one of exclude.lists, or resembles one"}
    title, shows, role = "Left out", "lists", "embedder"
    config = ExcludeConfig

    def __init__(
        self, lists: Sequence[ReferenceList], model: Embedder | None, cosine: float
    ) -> None:
        self._lists, self._model, self._cosine = lists, model, cosine

    @classmethod
    def backend(cls, config: ExcludeConfig) -> Backend | None:
        return EMBEDDING if config.model else None

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        return {"models": "exclude.model"} if recipe.of(ExcludeConfig).model else {}

    @classmethod
    def check(cls, plan: Plan) -> None:
        if (model := plan.models.get(cls.role)) is not None:
            for path in plan.config(ExcludeConfig).lists:
                open_references(path).check_model(model.name, model.sha256)

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        lists = [open_references(path).sha256 for path in plan.config(ExcludeConfig).lists]
        model = plan.models.get(cls.role)
        return {"lists": lists, **({"model": model.identity()} if model else {})}

    @classmethod
    def open(cls, plan: Plan) -> ExcludeStage:
        config, model = plan.config(ExcludeConfig), plan.models.get(cls.role)
        lists = [open_references(path) for path in config.lists]
        opened = None if model is None else EMBEDDING.make(config, str(model.path))
        return cls(lists, opened, config.cosine)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for batch in loaded_batches(samples, images, _BATCH):
            good = [(sample, image) for sample, image in batch if not isinstance(image, Drop)]
            drops = self._drops([sample.sample_id for sample, _ in good], [i for _, i in good])
            for sample, image in batch:
                yield image if isinstance(image, Drop) else drops.get(sample.sample_id, sample)

    def _drops(self, sample_ids: list[str], images: list[Pixels]) -> dict[str, Drop]:
        thumbnails, vectors, drops = [thumbnail(image) for image in images], None, {}
        if self._model is not None and images:
            embedded = isolate(images, self._embed)
            alike_to_none = np.zeros(self._model.width, np.float32)
            vectors = np.stack([alike_to_none if isinstance(v, Drop) else v for v in embedded])
            pairs = zip(sample_ids, embedded, strict=True)
            drops = {sample_id: v for sample_id, v in pairs if isinstance(v, Drop)}
        for references in self._lists:
            found = references.find(sample_ids, thumbnails, embeddings=vectors, cosine=self._cosine)
            for sample_id, other in zip(sample_ids, found, strict=True):
                if other is not None:
                    message = f"{other.name}: {other.kind} ({other.likeness})"
                    drops[sample_id] = Drop(reason="in_evaluation", message=message)
        return drops

    def _embed(self, images: Sequence[Pixels]) -> list[Float32[np.ndarray, " D"]]:
        assert self._model is not None
        return list(self._model.embed([self._model.square(image) for image in images]))


def open_references(path: str) -> ReferenceList:
    """A list of references, from a file here or at an address.

    Raises:
        InputError: there is none, or it is no such file.
    """
    full = path if "://" in path else str(Path(path).resolve())
    folder, _, name = full.rpartition("/")
    try:
        data = Store(folder or "/").read_range(name, 0, _MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: too large for a list of references, at most 2 GB are read")
    return ReferenceList(data, path)
