"""Removing the resumable state."""

from __future__ import annotations

from glit.dataset.manifest import read_manifest
from glit.outputs import output_folder
from glit.storage import Store


def clean(output: str) -> int:
    """Remove ``work/`` of a finished dataset; the bytes freed.

    Raises:
        UserError: the dataset is not finished, so the state is all there is; or a file.
    """
    dataset = Store(output_folder(output))
    read_manifest(dataset)
    freed = sum(max(entry.size, 0) for entry in dataset.below("work").walk())
    dataset.remove("work")
    return freed
