"""What a build reads besides its recipe."""

from __future__ import annotations

from dataclasses import dataclass

from glit.backends.captioners.user_captions import BroughtCaptions
from glit.backends.user_tables import UserTable
from glit.inputs.source import Source
from glit.inputs.user_captions import prepare
from glit.inputs.user_regions import prepare_regions
from glit.planning.lock import Lock
from glit.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The images of a build, the user's tables, and the models that it is locked to."""

    source: Source
    captions: BroughtCaptions | None = None
    regions: UserTable | None = None
    lock: Lock | None = None
    """Build with these models and no others."""


def read_inputs(
    source: Source, captions: str | None, regions: str | None, lock: Lock | None, *, work: Store
) -> Inputs:
    """Read the user's files of captions and regions into tables in the work folder.

    Raises:
        InputError: one is missing, of an unknown kind, or a row is not understood.
    """
    into = {"image_root": source.root, "work": work}
    return Inputs(
        source=source,
        captions=None if captions is None else prepare(captions, **into),
        regions=None if regions is None else prepare_regions(regions, **into),
        lock=lock,
    )
