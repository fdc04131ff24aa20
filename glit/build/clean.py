"""Removing the resumable state."""

from __future__ import annotations

from glit.dataset.manifest import read_manifest
from glit.storage import Store, local_folder


def clean(output: str) -> int:
    """Remove ``work/`` of a finished dataset; the bytes freed.

    Raises:
        UserError: the dataset is not finished, so the state is all there is; or no local folder.
    """
    local_folder(output)
    dataset = Store(output)
    read_manifest(dataset)
    freed = sum(max(entry.size, 0) for entry in Store(f"{output}/work").walk())
    dataset.remove("work")
    return freed
