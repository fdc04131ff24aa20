"""Removing the resumable state."""

from __future__ import annotations

from glit.dataset.manifest import read_manifest
from glit.pipeline.build_lock import only_one_build, remove_held
from glit.storage.outputs import output_folder
from glit.storage.store import Store


def clean(output: str) -> int:
    """Remove ``work/`` of a finished dataset; the bytes freed.

    Raises:
        UserError: the dataset is not finished, so the state is all there is; or a build is at work
            in it, or a file.
    """
    dataset = Store(output_folder(output))
    read_manifest(dataset)
    if not dataset.exists("work"):
        return 0
    work = dataset.below("work")
    freed = sum(max(entry.size, 0) for entry in work.walk())
    with only_one_build(work):
        read_manifest(dataset)  # a build that was to replace it may have removed it meanwhile
        remove_held(work)
    return freed
