"""Rows of a dataset whose images look or mean the same: left out, or in one group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from glit.data.hash_index import near_groups
from glit.data.meaning import near_duplicates
from glit.data.schema import WITH_DISTANCE
from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import DatasetError
from glit.images import ImageError, Pixels, decode
from glit.images.likeness import BEST_FIRST, Look, alike, cells_of, look
from glit.models.clip.opening import open_embedder
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress
from glit.stages.quality import has_quality

_AHEAD = 8
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A row that is left out."""

    number: int
    kept: int
    """The row that stays for it."""
    distance: float
    """1 minus the cosine of the embeddings."""


def find_repeats(
    dataset: Dataset,
    numbers: Int64[np.ndarray, " N"],
    *,
    cosine: float,
    model: str,
    progress: StageProgress,
) -> tuple[list[Repeat], str]:
    """The rows that repeat another one, which is larger or sharper, and the SHA-256 of the weights.

    Args:
        dataset: whose rows.
        numbers: of the rows to compare, ascending.
        cosine: from which two images are the same.
        model: whose image embeddings are compared: a name, a folder, a run or a hub id.
        progress: counts the images.

    Raises:
        DatasetError: an image cannot be read.
        WeightsError: there is no such model.
        RunError: an embedding is not finite.
    """
    loaded = open_embedder(model, needed_for="--distinct")
    progress.begin("embed", total=len(numbers), done=0, drops=False)
    found = np.empty((len(numbers), loaded.width), np.float32)
    done = 0
    for some in loaded.pixels(_images(dataset, numbers, lambda pixels: pixels)):
        found[done : done + len(some)] = some
        done += len(some)
        progress.advance(len(some))
    order = _best_first(dataset, numbers)
    repeats = near_duplicates(found[order], least=cosine)
    best_first = numbers[order].tolist()
    rows = [
        Repeat(number=best_first[a], kept=best_first[b], distance=round(1 - value, 6))
        for a, (b, value) in repeats.items()
    ]
    return sorted(rows, key=lambda row: row.number), loaded.sha256


def groups_alike(
    dataset: Dataset, numbers: Int64[np.ndarray, " N"], *, bits: int, progress: StageProgress
) -> list[str]:
    """Return for each row the ``sample_id`` of the first that looks like it, or like one that does.

    Args:
        dataset: whose rows.
        numbers: of the rows to compare, ascending.
        bits: of 64, in which the perceptual hashes of images that look alike differ at most; their
            colours are alike too. A picture too even to have a hash looks like no other.
        progress: counts the images.

    Raises:
        DatasetError: an image cannot be read.
    """
    progress.begin("hash", total=len(numbers), done=0, drops=False)
    seen: list[Look] = []
    for each in _images(dataset, numbers, look):
        seen.append(each)
        progress.advance(1)
    hashed = np.array([at for at, each in enumerate(seen) if each.hash is not None], np.int64)
    hashes = np.array([seen[at].hash for at in hashed], np.int64).view(np.uint64)
    colours = cells_of([seen[at].colours for at in hashed])
    groups = near_groups(
        hashes, most_bits=bits, confirm=lambda one, other: alike(colours[one], colours[other])
    )
    first = np.arange(len(seen))
    first[hashed] = hashed[groups]
    return dataset.table(["sample_id"])["sample_id"].take(pa.array(numbers[first])).to_pylist()


def _images(
    dataset: Dataset, numbers: Int64[np.ndarray, " N"], made: Callable[[Pixels], Out]
) -> Iterator[Out]:
    """Yield the result of ``made`` for the image of each row, in order, by threads."""
    columns = ("sample_id", "source_path", "image")
    groups = RowGroupCache(dataset, capacity=2, columns=columns)

    def work(number: int) -> Out:
        group, row = dataset.locate(number)
        table = groups.get(group)
        try:
            return made(decode(table.image(row)))
        except ImageError as error:
            path = table.table.column("source_path")[row].as_py()
            raise DatasetError(f"{path}: {error}; run 'glit verify'") from error

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from map_ahead(pool, work, numbers.tolist(), most=_AHEAD)


def _best_first(dataset: Dataset, numbers: Int64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
    """The order of :data:`glit.images.likeness.BEST_FIRST`, where regions are the labels; then by
    ``sample_id``."""
    measured = has_quality(dataset.schema)
    columns = ["sample_id", "width", "height", *["quality"] * measured]
    table = dataset.table(columns).take(pa.array(numbers))
    width, height = (table[name].to_numpy().astype(np.int64) for name in ("width", "height"))
    quality = table["quality"].to_pylist() if measured else ()
    sharpness = [(each or {}).get("sharpness") for each in quality] or [None] * len(table)
    regions = (dataset.table(["regions"], file=name)["regions"] for name in dataset.first_rows())
    labels = [bool(len(row)) for column in regions for row in column]
    values = {
        "labels": np.array(labels, np.int64)[numbers],
        "pixels": width * height,
        "sharpness": np.nan_to_num(np.array(sharpness, np.float64), nan=-1.0),
    }
    keys = [-values[name] for name in BEST_FIRST]
    return np.lexsort((table["sample_id"].to_numpy(), *reversed(keys)))


def repeats_table(dataset: Dataset, repeats: list[Repeat]) -> pa.Table:
    """The rows of ``duplicates.parquet``, with the distance of each."""
    names = dataset.table(["sample_id", "source_path"])
    own = names.take(pa.array([each.number for each in repeats], pa.int64()))
    kept = names["source_path"].take(pa.array([each.kept for each in repeats], pa.int64()))
    kinds = pa.array(["meaning"] * len(repeats), pa.string())
    distances = pa.array([each.distance for each in repeats], WITH_DISTANCE.field("distance").type)
    columns = [own["sample_id"], own["source_path"], kept, kinds, distances]
    return pa.table(columns, schema=WITH_DISTANCE)
