"""Exporters: one file per format, registered in :data:`EXPORTERS`.

An exporter is a function of the finished dataset, an empty folder, and a callback that receives the
number of rows written since its last call. It iterates row by row, so memory use stays flat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.curate.attaching.annotations import export_annotations
from glit.dataset.manifest import require_regions
from glit.errors import InputError, closest
from glit.exporters.changed_rows import ChangedRows
from glit.exporters.coco import export_coco
from glit.exporters.common_pictures import CommonPictures
from glit.exporters.goal import export_goal
from glit.exporters.grit import export_grit
from glit.exporters.hf import export_hf
from glit.exporters.lance import export_lance
from glit.exporters.mdetr import export_mdetr
from glit.exporters.odvg import export_odvg
from glit.exporters.webdataset import export_webdataset
from glit.exporters.without_grid import table_without_grid, without_grid
from glit.recipes.plugins import described, missing
from glit.storage.outputs import new_folder

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset

Report = Callable[[int], None]
Exporter = Callable[["Dataset", Path, Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """A format that datasets are written in."""

    write: Callable[..., None]
    """An :data:`Exporter`; its keyword-only parameters are the options of :func:`export` that the
    format takes."""
    read_by: str = ""
    """The libraries or the call that read it."""
    needs_regions: bool = False
    """True for a format of boxes alone; a dataset of captions alone is refused."""
    has_all_columns: bool = False
    """True if it copies the dataset's own columns, and so all regions and pictures."""
    has_images: bool = True
    """False if it never holds the pictures."""

    @property
    def options(self) -> frozenset[str]:
        """Names of the options that it takes."""
        given = inspect.signature(self.write).parameters.values()
        return frozenset(each.name for each in given if each.kind is each.KEYWORD_ONLY)


EXPORTERS: dict[str, ExportFormat] = {
    "coco": ExportFormat(write=export_coco, read_by="pycocotools, FiftyOne"),
    "goal": ExportFormat(
        write=export_goal, read_by="the published trainer of GOAL", needs_regions=True
    ),
    "grit": ExportFormat(
        write=export_grit, read_by="Parquet readers, Kosmos-2's loaders", needs_regions=True
    ),
    "hf": ExportFormat(write=export_hf, read_by="datasets.load_dataset"),
    "lance": ExportFormat(write=export_lance, read_by="lance", has_all_columns=True),
    "mdetr": ExportFormat(
        write=export_mdetr, read_by="pycocotools, MDETR's loaders", needs_regions=True
    ),
    "odvg": ExportFormat(
        write=export_odvg,
        read_by="MM-Grounding-DINO, LLMDet, Grounding DINO of NVIDIA TAO",
        needs_regions=True,
    ),
    "webdataset": ExportFormat(write=export_webdataset, read_by="webdataset"),
    "annotations": ExportFormat(
        write=export_annotations, read_by="glit attach", has_all_columns=True, has_images=False
    ),
}
"""By the name that ``glit export --to`` takes."""


def export(
    dataset: Dataset,
    *,
    to: str,
    output: Path,
    embeddings: str = "",
    grid: bool = True,
    reencode: bool = False,
    images: bool = True,
    thumbnails: bool = True,
    report: Report = lambda rows: None,
) -> None:
    """The work of :func:`glit.api.export`. ``report`` gets the number of more rows that are
    written.

    Raises:
        InputError: no such format, the folder exists, the format takes no embeddings or has all
            columns of the dataset, or it wants regions and there are captions alone.
        DatasetError: a file of the dataset is damaged.
    """
    if to not in EXPORTERS:
        absent = (described(each) for each in missing(dataset.manifest.recipe.plugins))
        of = "".join(f"; {dataset.path} was made with {plugin}" for plugin in absent)
        raise InputError(f"--to {to}: no such format; {closest(to, EXPORTERS)}{of}")
    kind = EXPORTERS[to]
    for option, given in (("--no-grid", not grid), ("--reencode", reencode)):
        if given and kind.has_all_columns:
            raise InputError(f"{option}: --to {to} has all columns of the dataset; want another")
    if reencode and not images:
        raise InputError("--reencode: there is nothing to encode with --without-images")
    options = _options(to, kind, embeddings=embeddings, images=images, thumbnails=thumbnails)
    if not grid:
        dataset = ChangedRows(dataset, without_grid, table_without_grid)
    pictures = CommonPictures(dataset.manifest.recipe, reencode=reencode)
    if not kind.has_all_columns and images:
        dataset = ChangedRows(dataset, pictures)
    if kind.needs_regions:
        require_regions(dataset.manifest, dataset.path, wanted_by=f"--to {to} writes")
    with new_folder(output) as partial:
        kind.write(dataset, partial, report, **options)
    pictures.warn(to)


def _options(
    to: str, kind: ExportFormat, *, embeddings: str, images: bool, thumbnails: bool
) -> dict[str, Any]:
    """Return the options that are not at their defaults, by the name that the writer gives them.

    Raises:
        InputError: the format does not take one.
    """
    given: dict[str, Any] = {}
    for name, option, value, is_given in (
        ("embeddings", "--embeddings", embeddings, embeddings),
        ("images", "--without-images", images, not images and kind.has_images),
        ("thumbnails", "--no-thumbnails", thumbnails, not thumbnails),
    ):
        if is_given and name not in kind.options:
            able = [n for n, each in EXPORTERS.items() if name in each.options]
            able += ["annotations"] if name == "images" else []
            raise InputError(f"{option}: --to {to} does not take it; want --to {' or '.join(able)}")
        if is_given:
            given[name] = value
    return given
