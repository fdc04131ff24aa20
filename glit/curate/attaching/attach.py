"""``glit attach``: find the pictures of a dataset that was published without them.

Each sample gets the user's file of the same bytes, else of the same pixels, else one that looks the
same after it was encoded again, resized, cut, padded, mirrored or turned; boxes and masks move with
it. What is found is kept in a work file beside the output until that is whole, so a stopped run
goes on when it is started again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glit.curate.attaching.choice import Matches
from glit.curate.attaching.picture import require_opencv
from glit.curate.attaching.published import PublishedPictures
from glit.curate.attaching.search import PictureSearch
from glit.curate.attaching.user_pictures import UserPictures
from glit.curate.attaching.work_file import work_file
from glit.curate.attaching.writer import AttachedRows
from glit.curate.derive import change_rows, finish
from glit.data.schema import PICTURES
from glit.dataset.by_hand import UNREVIEWED
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.images.location import removed_note
from glit.runtime.progress import StageProgress
from glit.stages.pack import Pack
from glit.storage.outputs import new_folder
from glit.storage.store import Store

_VERSION = 4
"""Version of what a work file holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Counts of :func:`attach`."""

    samples: int
    """Samples of the dataset that was published."""
    found: dict[str, int]
    """Number of samples that got a picture, by how it was found: the keys of
    :data:`glit.curate.attaching.choice.WAYS`."""
    drops: dict[str, int]
    """Samples that are left out, by reason."""
    files: int
    """The user's picture files."""
    unreadable: int
    """Number of these that no decoder reads."""


def attach(
    dataset: Dataset, images: Sequence[str], output: Path, progress: StageProgress
) -> Attached:
    """The work of :func:`glit.api.attach`.

    Raises:
        InputError: the dataset has pictures, no picture is found for any sample, or there are none.
        DatasetError: a file of the dataset is damaged.
        MissingExtraError: OpenCV is not installed.
        RunError: a picture was changed meanwhile.
    """
    manifest = dataset.manifest
    if manifest.recipe.holds_images or PICTURES not in manifest.files:
        raise InputError(
            f"{dataset.path}: has no {PICTURES}; want a dataset that glit export --to annotations "
            "or glit push --without-images wrote"
        )
    require_opencv().setNumThreads(1)
    pictures = UserPictures(images)
    work = output.with_name(f".{output.name}.attach")
    key = hashlib.sha256(manifest.as_bytes()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(new_folder(output))
        local = stack.enter_context(Store(dataset.path).local_copy(PICTURES))
        is_new = not work.exists()
        work.mkdir(exist_ok=True)
        connection = stack.enter_context(work_file(work / f"{key}-{_VERSION}.duckdb"))
        number = pictures.list_files(connection)
        if not number:
            if is_new:  # else of an earlier run, as before a disk was unmounted
                shutil.rmtree(work)
            raise InputError("--images: no picture files there")
        published = PublishedPictures(dataset, local, connection)
        search = PictureSearch(published, pictures, connection, progress)
        search.run()
        found = Matches(connection)
        if not len(found):
            raise InputError(f"--images: none of {number} files is a picture of {dataset.path}")
        attached = AttachedRows(dataset, pictures, found, progress)
        progress.begin("attach", total=len(dataset), done=0)
        made = change_rows(
            dataset, folder, attached, stage="attach", added=attached.added, values=UNREVIEWED,
            without=[PICTURES],
        )  # fmt: skip
        pack = {**manifest.recipe.table(Pack.name), "image_store": "bytes"}
        finish(
            folder, dataclasses.replace(made, recipe=made.recipe.with_table(Pack.name, pack)),
            name=output.name, sources=[dataset],
            certificates=() if attached.changed else manifest.certificates,
        )  # fmt: skip
        unreadable = search.count_unreadable()
    shutil.rmtree(work, ignore_errors=True)
    if attached.located:
        progress.note(removed_note(attached.located))
    return Attached(
        samples=len(dataset), found=dict(attached.ways), drops=dict(attached.reasons),
        files=number, unreadable=unreadable,
    )  # fmt: skip
