"""Name glit's mini models, which run on any image and are right on its scenes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from glit.dataset.manifest import Manifest
from glit.dataset.reader import Dataset
from glit.errors import DatasetError
from glit.images import ImageError, Pixels
from glit.scenes.recognise import looks_like_scene

LOOKED_AT = 16
_GROUPS = 4


def meaningless(models: Mapping[str, str], pictures: Iterable[Pixels]) -> str:
    """Return the results of mini models that mean nothing on these pictures; empty where they are
    scenes.

    Args:
        models: names of the mini models by role.
        pictures: some of the images; the first are looked at, and none if no model is mini.
    """
    roles = models.keys() - {"tokenizer"}
    if not roles:
        return ""
    if _are_scenes(pictures):
        return ""
    if roles == {"captioner"}:
        return "captions"
    return "pairs" if roles == {"matcher"} else "regions and pairs"


def caution(manifest: Manifest, pictures: Iterable[Pixels]) -> str:
    """A warning for a card or a page that mini models ran on other images than scenes, or empty."""
    models = {
        role: model.name
        for role, model in sorted(manifest.models.items())
        if model.is_mini and role != "tokenizer"
    }
    if not (what := meaningless(models, pictures)):
        return ""
    return (
        f"The {what} mean nothing. What {' and '.join(models.values())} learned is glit's "
        "procedural scenes alone, and these images look otherwise."
    )


def dataset_caution(dataset: Dataset) -> str:
    """:func:`caution` of a finished dataset; its images are read where a model is mini alone."""
    return caution(dataset.manifest, _pictures(dataset))


def shows_scenes(dataset: Dataset) -> bool:
    """Return whether the images of a dataset look like procedural scenes, or none can be read."""
    return _are_scenes(_pictures(dataset))


def _are_scenes(pictures: Iterable[Pixels]) -> bool:
    looks = [looks_like_scene(each) for each in islice(pictures, LOOKED_AT)]
    return not looks or sum(looks) >= len(looks) / 2


def _pictures(dataset: Dataset) -> Iterator[Pixels]:
    """Some images of a few row groups; those that cannot be read are passed over."""
    groups = range(0, len(dataset.places), len(dataset.places) // _GROUPS + 1)
    for number in groups:
        rows = dataset.row_group(number)
        for row in range(min(len(rows), LOOKED_AT // len(groups))):
            try:
                yield rows[row].pixels()
            except (DatasetError, ImageError):
                continue
