"""Image embeddings of a dataset by its own matcher, for ``glit view --serve``: a map, the nearest.

They are computed once, in the background, when somebody asks, and kept in memory alone.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import GlitError, InputError, MissingExtraError, RunError
from glit.images import ImageError, decode
from glit.models.clip.opening import open_embedder
from glit.recipes.extras import require

MOST = 20_000
"""Samples; of more, the first."""
_BATCH = 32
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class Embeddings:
    """Embeddings that come when they are asked for; threads may share them.

    Args:
        dataset: whose images.
        model: of :func:`matcher_here`.
        sha256: of its weights, as the manifest has it.
        rows: gives the numbers of the rows, at most :data:`MOST`.
    """

    def __init__(
        self, dataset: Dataset, *, model: Path, sha256: str, rows: Callable[[], Sequence[int]]
    ) -> None:
        self._dataset = dataset
        self._model, self._sha256, self._rows = model, sha256, rows
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault = ""
        self._done, self._total = 0, 0
        self._numbers: list[int] = []
        self._ids: list[str] = []
        self._vectors: Float[np.ndarray, "n d"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, rows: Callable[[], Sequence[int]]) -> Self | None:
        """The embeddings of a dataset; None if its matcher is not at hand."""
        matcher = dataset.manifest.models.get("matcher")
        model = matcher and matcher_here(matcher.name, matcher.revision)
        if not matcher or not model:
            return None
        return cls(dataset, model=model, sha256=matcher.sha256, rows=rows)

    def close(self) -> None:
        """End the work; waits for the batch at hand."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def progress(self) -> dict[str, int]:
        """``done`` and ``total``; the first call starts the work.

        Raises:
            RunError: the work failed.
        """
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        if self._fault:
            raise RunError(self._fault)
        return {"done": self._done, "total": self._total}

    def map(self) -> dict[str, Any]:
        """The progress, and when all is done, ``points``: row number, id, x and y in [0, 1].

        The axes are the two principal components.
        """
        told = self.progress()
        if self._vectors is None:
            return told
        places = principal_plane(self._vectors).round(4).tolist()
        points = [[n, i, *xy] for n, i, xy in zip(self._numbers, self._ids, places, strict=True)]
        return {**told, "points": points}

    def nearest(self, number: int, most: int) -> dict[str, Any]:
        """The progress, and when all is done, ``nearest``: row numbers and cosines, itself first.

        Raises:
            InputError: the row was not embedded.
        """
        told = self.progress()
        if self._vectors is None:
            return told
        if number not in self._numbers:
            raise InputError(f"row {number} has no embedding")
        cosines = self._vectors @ self._vectors[self._numbers.index(number)]
        order = np.argsort(-cosines, kind="stable")[:most]
        return {**told, "nearest": [(self._numbers[at], float(cosines[at])) for at in order]}

    def _work(self) -> None:
        try:
            self._embed()
        except (GlitError, OSError, ValueError, RuntimeError) as error:
            self._fault = f"matcher {self._model.name}: {error}"

    def _embed(self) -> None:
        from glit.models.files import weights_hash

        numbers = self._rows()
        self._total = len(numbers)
        if weights_hash(self._model) != self._sha256:
            raise RunError("its weights are not those that the dataset was built with")
        loaded = open_embedder(str(self._model), needed_for="find similar", batch_size=_BATCH)
        found = []
        for some in loaded.pixels(self._pictures(numbers)):
            if self._stopped.is_set():
                return
            found.append(some)
        if not found:
            raise RunError("no image can be read")
        self._vectors = np.concatenate(found).astype(np.float32)

    def _pictures(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Pixels of the images that can be read; the others have no embedding."""
        columns = ("sample_id", "source_path", "image")
        groups = RowGroupCache(self._dataset, capacity=1, columns=columns)
        for number in numbers:
            group, row = self._dataset.locate(number)
            table = groups.get(group)
            self._done += 1
            try:
                pixels = decode(table.image(row))
            except ImageError:
                continue
            self._numbers.append(number)
            self._ids.append(table.table.column("sample_id")[row].as_py())
            yield pixels


def matcher_here(name: str, revision: str) -> Path | None:
    """The folder of a model that can be loaded without a network, else None.

    A dataset may come from anybody, so a name that is a path counts for nothing.
    """
    from glit.models.weights import look_up, manifest

    is_path = os.path.exists(name) or not (name in manifest() or _HUB_ID.fullmatch(name))
    if not name or is_path:
        return None
    try:
        require("models", needed_for="find similar")
    except MissingExtraError:
        return None
    return look_up(name, revision or "main").path


def principal_plane(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2"]:
    """Places on the two principal components, each in [0, 1].

    >>> principal_plane(np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]])).round(2).tolist()
    [[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]]
    """
    centred = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    axes = axes[:, ::-1][:, :2]
    axes = axes * np.where(axes.sum(axis=0) < 0, -1, 1)
    places = centred @ axes
    spread = np.ptp(places, axis=0)
    flat = spread < 1e-9
    return np.where(flat, 0.5, (places - places.min(axis=0)) / np.where(flat, 1, spread))
