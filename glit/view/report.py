"""Write the report page of ``glit view DATASET -o report.html``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from glit.dataset.mini_models import dataset_caution
from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.dataset.select import Selection, select
from glit.errors import InputError
from glit.images import ImageError
from glit.images.thumbnails import data_url, thumbnail
from glit.plain import as_plain
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress, null_progress
from glit.stages.quality import has_quality
from glit.storage.store import Store
from glit.version import __version__
from glit.view.charts import charts, figures, labels, sources, totals
from glit.view.dropped import all_dropped
from glit.view.originals import Originals
from glit.view.page_file import report_html
from glit.view.quality import quality
from glit.view.samples import sample
from glit.view.story import left_out, story

_SAY_NOTHING = ("dataset", "data", "out", "output")
"""Names of folders that many datasets have."""
PatchMaps = Callable[[list[int]], list[list[dict[str, Any]]]]
"""Maps of every sentence by several models, for rows of a dataset."""


def write_report(
    dataset: Dataset,
    output: Path,
    *,
    most: int = 200,
    seed: int = 0,
    where: str = "",
    maps: PatchMaps | None = None,
    progress: StageProgress | None = None,
) -> dict[str, Any]:
    """Write the page.

    Args:
        dataset: a finished one.
        output: the file; one that exists is replaced.
        most: samples on the page.
        seed: of their choice.
        where: a condition on them in SQL.
        maps: of sentences over the images, for rows of the dataset; see
            :func:`glit.evaluation.patch_maps.patch_maps`.
        progress: shows the number of samples done.

    Returns:
        The page's data.

    Raises:
        UserError: the condition is wrong, or the file cannot be written.
        DatasetError: a file of the dataset, or an image stored by path, cannot be read.
    """
    data = report_data(dataset, most=most, seed=seed, where=where, progress=progress)
    if maps is not None:
        add_maps(data["samples"], maps)
    write_page(output, report_html(data))
    return data


def add_maps(samples: Sequence[dict[str, Any]], maps: PatchMaps) -> None:
    """Give the samples whose image is shown their maps."""
    shown = [each for each in samples if each["image"]]
    found_of = maps([each["n"] for each in shown]) if shown else []
    for each, found in zip(shown, found_of, strict=True):
        each["maps"] = found


def write_page(output: Path, html: str) -> None:
    """Write a page; it appears whole.

    Raises:
        InputError: it cannot be written.
    """
    try:
        Store(output.parent).write(output.name, html.encode())
    except OSError as error:
        raise InputError(f"-o {output}: cannot write there ({error.strerror or error})") from error


def report_data(
    dataset: Dataset, *, most: int, seed: int, where: str, progress: StageProgress | None = None
) -> dict[str, Any]:
    """The page's data, as JSON."""
    with connect(dataset) as connection:
        chosen = select(dataset, connection, most=most, seed=seed, where=where)
        return {
            **overview(dataset),
            "totals": totals(connection),
            "left_out": left_out(connection),
            "charts": charts(connection),
            "figures": figures(dataset),
            "sources": sources(connection),
            "labels": labels(connection),
            "selection": {"shown": len(chosen.numbers), "matching": chosen.matching,
                          "all": len(dataset), "seed": seed, "where": where},
            "samples": list(_samples(dataset, chosen, progress or null_progress())),
            "dropped": all_dropped(connection, Originals.of(dataset.path, dataset.image_root)),
            **({"quality": quality(dataset, connection)} if has_quality(dataset.schema) else {}),
        }  # fmt: skip


def page_title(path: str) -> str:
    """A dataset's folder, and the one around it where its name says nothing.

    >>> page_title("/data/photos/dataset"), page_title("s3://bucket/birds/")
    ('photos/dataset', 'birds')
    """
    *around, name = Path(os.path.abspath(path)).parts
    return f"{around[-1]}/{name}" if name in _SAY_NOTHING and len(around) > 1 else name


def overview(dataset: Dataset) -> dict[str, Any]:
    """The part of the page that follows from the manifest alone."""
    return {
        "kind": "report",
        "name": Path(os.path.abspath(dataset.path)).name,
        "title": page_title(dataset.path),
        "glit": __version__,
        "fingerprint": "-".join(dataset.manifest.fingerprints.values()),
        "caution": dataset_caution(dataset),
        "story": story(dataset.manifest),
        "counts": as_plain(dataset.manifest.counts),
    }


def _samples(dataset: Dataset, chosen: Selection, told: StageProgress) -> Iterator[dict[str, Any]]:
    """Rows with their thumbnails, some threads ahead."""
    told.begin("samples", total=len(chosen.numbers), done=0, drops=False)
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=workers) as threads:
        work = partial(_sample, dataset)
        for found in map_ahead(threads, work, chosen.numbers, most=2 * workers):
            told.advance(1)
            yield found


def _sample(dataset: Dataset, number: int) -> dict[str, Any]:
    row = dataset[number]
    return sample(row, number=number, image=thumbnail_url(row))


def thumbnail_url(row: Row) -> str:
    """A row's thumbnail as a data URL; empty if the file is damaged.

    The page says that it cannot be shown; ``glit verify`` says why.
    """
    try:
        return data_url(thumbnail(row.encoded()))
    except ImageError:
        return ""
