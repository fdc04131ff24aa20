"""What a build finds in its folder: an earlier listing, and perhaps a finished dataset."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from glit.dataset.croissant import CROISSANT
from glit.dataset.manifest import MANIFEST, num_series, read_manifest
from glit.errors import UserError
from glit.pipeline.build_lock import FOLDER as LOCK_FOLDER
from glit.pipeline.listing import DAMAGED, Chunk, read_chunks, series_lengths
from glit.pipeline.listing_diff import Difference, difference_of_listings
from glit.pipeline.published import identities, published
from glit.pipeline.status import STATE
from glit.pipeline.work import Work
from glit.storage.store import Store

_FOLDERS = ("data", "work")
_FILES = ("README.md", CROISSANT, "drops.parquet", "duplicates.parquet")
_OF_A_BUILD = (STATE, "listing.parquet", ".lock", LOCK_FOLDER)
"""What a build that has begun has in its work folder, one of them at least."""


def refuse_others_files(dataset: Store) -> None:
    """See that a build puts nothing in the place of files that are not glit's; to be called before
    the work folder is held, which is a sign of a build.

    Raises:
        UserError: the folder is neither a dataset nor a build, and holds such files.
    """
    if any(map(dataset.exists, (MANIFEST, *(f"work/{name}" for name in _OF_A_BUILD)))):
        return
    taken = [f"{name}/" for name in _FOLDERS if _holds_something(dataset, name)]
    taken += [name for name in _FILES if dataset.exists(name)]
    if taken:
        raise UserError(
            f"{dataset.root}: holds {', '.join(taken)}, which a build would replace, and neither a "
            "dataset nor a build of glit; choose another folder with -o"
        )


def _holds_something(dataset: Store, folder: str) -> bool:
    return dataset.exists(folder) and any(True for _ in dataset.below(folder).walk())


class EarlierListing:
    """The listing in the work folder, beside one that is to take its place.

    Args:
        work: the work folder.
        now: the new listing.
    """

    def __init__(self, work: Store, now: Path) -> None:
        self._work, self._now = work, now
        try:
            self.num_series = len(series_lengths(work.for_arrow("listing.parquet")))
            """0 where there is no listing, or its footer is damaged."""
        except DAMAGED:
            self.num_series = 0

    @property
    def is_added_to(self) -> bool:
        """Whether it says in which order images came, which a new one cannot."""
        return self.num_series > 1 and bool(self.chunks)

    @cached_property
    def chunks(self) -> list[Chunk]:
        """None where it is damaged."""
        try:
            return read_chunks(self._work.for_arrow("listing.parquet"))
        except DAMAGED:
            return []

    @cached_property
    def difference(self) -> Difference:
        """How the new one differs from it."""
        with self._work.local_copy("listing.parquet") as path:
            return difference_of_listings(self._now, path)

    def how_it_differs(self, chunks: Sequence[Chunk]) -> str:
        """What a user is to know before a build goes on with the new one; empty where nothing.

        Args:
            chunks: of the new one.
        """
        if not self.num_series or self._is_equal() or not (self.chunks and self.difference):
            return ""
        before = {chunk.key for chunk in self.chunks}
        others = sum(chunk.key not in before for chunk in chunks)
        return (
            f"{self.difference}, since this folder was last built here; {others} of {len(chunks)} "
            "chunks hold other images than before and are done anew"
        )

    def _is_equal(self) -> bool:
        with self._work.local_copy("listing.parquet") as path:
            return filecmp.cmp(path, self._now, shallow=False)

    def keep(self) -> list[Chunk]:
        """Put it into the new one's place; its chunks."""
        self._now.write_bytes(self._work.read("listing.parquet"))
        return self.chunks


def finished_already(
    dataset: Store, work: Work, chunks: list[Chunk], earlier: EarlierListing, *, replace: bool
) -> dict[str, Any] | None:
    """The manifest if the dataset is there already, whole, and built from the same things.

    Args:
        dataset: where it would be.
        work: the build.
        chunks: what it is to be built from.
        earlier: the listing that the work folder has.
        replace: whether a dataset built otherwise may be replaced.

    Raises:
        UserError: the folder holds a dataset built otherwise.
    """
    if not dataset.exists(MANIFEST):
        if not replace:
            _refuse_to_begin_anew(dataset, work, earlier)
        return None
    manifest = read_manifest(dataset)
    same = manifest["fingerprints"] == dict(work.plan.fingerprints)
    noted = published(work.store)
    made_of = [each.images for each in noted or ()]
    if same and made_of == identities(chunks) and len(made_of) == num_series(manifest):
        return manifest if is_whole(dataset, manifest) else None
    if replace:
        return None
    if same and noted is None:
        raise UserError(
            f"{dataset.root}: holds a finished dataset, but its work folder was cleaned, so "
            "whether it is of these images cannot be told; add --replace to build it anew"
        )
    what = "recipe or models" if not same else "images"
    how = _how_it_grew(dataset, manifest, made_of, earlier) if same else ""
    raise UserError(
        f"{dataset.root}: holds a finished dataset of other {what} "
        f"(recipe {manifest['recipe']['name']!r}); {how}choose another folder with -o, or add "
        "--replace to rebuild it here, reusing what has not changed"
    )


def _refuse_to_begin_anew(dataset: Store, work: Work, earlier: EarlierListing) -> None:
    """A dataset that was added to is not made anew because a folder has changed.

    Raises:
        UserError: that would happen.
    """
    if earlier.is_added_to and earlier.difference:
        raise UserError(
            f"{dataset.root}: images were added to this dataset, and its files were being replaced "
            f"when that was stopped; {earlier.difference}. Run glit retry, which finishes it as it "
            "was, or add --replace to make everything anew"
        )
    if len(published(work.store) or ()) > 1 and not (earlier.num_series and earlier.chunks):
        raise UserError(
            f"{dataset.root}: images were added to this dataset, and its files were being replaced "
            "when that was stopped; its listing is gone or damaged since, so nothing tells in "
            "which order they came; add --replace to make everything anew"
        )


def _how_it_grew(
    dataset: Store, manifest: dict[str, Any], made_of: list[str], earlier: EarlierListing
) -> str:
    """What to do about a folder that differs from that of the dataset; empty where its listing is
    not there.

    Raises:
        UserError: an addition has begun, and is to be finished first.
    """
    told = num_series(manifest)
    if earlier.num_series < told or identities(earlier.chunks)[:told] != made_of[:told]:
        return ""
    if earlier.num_series > told:
        raise UserError(
            f"{dataset.root}: images are being added to this dataset; run glit add again, which "
            "goes on where it stopped"
        )
    takes_in = "glit add takes in the new ones; or " if earlier.difference.new else ""
    return f"{earlier.difference}. {takes_in}"


def is_whole(dataset: Store, manifest: dict[str, Any]) -> bool:
    """Whether every file of the manifest is there with its size; ``glit verify`` reads them."""
    return all(
        dataset.entry(name).size == found["bytes"] for name, found in manifest["files"].items()
    )
