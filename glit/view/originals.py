"""Find the files of dropped images, if they are still unchanged.

A dataset names them, and it may come from anybody: a file is shown only when it lies below the
folder that was ingested and is, by its SHA-256, the one that was left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Self

from glit.errors import InputError
from glit.images import ImageError
from glit.images.thumbnails import data_url, thumbnail
from glit.inputs.files import ImageFiles
from glit.inputs.source import find_source
from glit.storage.store import Store, inside

_STATE = "work/state.json"


class Originals:
    """Files below a folder.

    Args:
        root: the folder or address; nothing is found without one.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    @classmethod
    def of(cls, output: str, image_root: str) -> Self:
        """The images of a build: ``image_root``, else the folder recorded in its work folder."""
        return cls(image_root or _remembered(Store(output)))

    def picture(self, path: str, sample_id: str, *, max_side: int, max_bytes: int) -> str:
        """A thumbnail as a data URL; empty if the file is gone, different or damaged.

        Args:
            path: of the file, relative to the ingested folder.
            sample_id: SHA-256 of the file, hex; without it nothing is shown.
            max_side: pixels.
            max_bytes: of the picture.
        """
        data = self._read(path) if sample_id else None
        if data is None or hashlib.sha256(data).hexdigest() != sample_id:
            return ""
        try:
            small = thumbnail(data, max_side=max_side, max_bytes=max_bytes)
        except ImageError:
            return ""
        return data_url(small)

    def _read(self, path: str) -> bytes | None:
        if not self._root:
            return None
        try:
            return ImageFiles(self._root).read(inside(path))
        except OSError:
            return None


def _remembered(output: Store) -> str:
    """The root of the last build, where the work folder is still here; else empty."""
    if not output.is_local:
        return ""
    try:
        state = json.loads(Path(output.full(_STATE)).read_text(encoding="utf-8"))
        images = os.fspath(state["images"])
        root = "" if "://" in images else find_source(images).root
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return ""
    return root
