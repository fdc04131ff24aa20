"""Exclude: drop images of evaluation sets, before anything is paid for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from glit.data.records import Drop, Sample
from glit.data.reference_list import ReferenceList
from glit.data.resemblance import Thumbnail, thumbnail
from glit.errors import InputError
from glit.recipes.config import require_value
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource, loaded_batches
from glit.stages.plan import Plan
from glit.storage.store import Store

_BATCH = 64
_MOST_BYTES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeConfig:
    """Images that must not be in the dataset."""

    enabled: bool = False
    """Whether images of ``lists`` are dropped as ``in_evaluation``: the same file, and the same
    picture re-encoded, resized, recoloured, turned, mirrored or cropped to 80 %."""
    lists: tuple[str, ...] = ()
    """Files that ``glit references`` wrote, paths or addresses that all workers can read."""

    def __post_init__(self) -> None:
        require_value(
            bool(self.lists) or not self.enabled,
            "[exclude] lists: found none, want files that 'glit references' wrote",
        )


class ExcludeStage(Stage):
    """Compares every image with lists of others."""

    name = "exclude"
    version = 1
    reads = ("image",)
    filters = True
    reasons: ClassVar = {"in_evaluation": "the image is in one of exclude.lists, or resembles one"}
    title, shows = "Left out", "lists"
    config = ExcludeConfig

    def __init__(self, lists: Sequence[ReferenceList]) -> None:
        self._lists = lists

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        lists = plan.config(ExcludeConfig).lists
        return {"lists": [open_references(path).sha256 for path in lists]}

    @classmethod
    def open(cls, plan: Plan) -> ExcludeStage:
        return cls([open_references(path) for path in plan.config(ExcludeConfig).lists])

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for batch in loaded_batches(samples, images, _BATCH):
            good = [(sample, image) for sample, image in batch if not isinstance(image, Drop)]
            thumbnails = [thumbnail(image) for _, image in good]
            drops = self._drops([sample.sample_id for sample, _ in good], thumbnails)
            for sample, image in batch:
                yield image if isinstance(image, Drop) else drops.get(sample.sample_id, sample)

    def _drops(self, sample_ids: list[str], thumbnails: list[Thumbnail]) -> dict[str, Drop]:
        drops = {}
        for references in self._lists:
            found = references.find(sample_ids, thumbnails)
            for sample_id, other in zip(sample_ids, found, strict=True):
                if other is not None:
                    message = f"{other.name}: {other.kind} ({other.correlation:.3f})"
                    drops[sample_id] = Drop(reason="in_evaluation", message=message)
        return drops


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
