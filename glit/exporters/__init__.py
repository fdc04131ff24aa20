"""Exporters: one file per format, registered in :data:`EXPORTERS`.

An exporter is a function of the finished dataset, an empty folder, and a callback that receives the
number of rows written since its last call. It iterates row by row, so memory use stays flat.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from glit.dataset.manifest import require_regions
from glit.errors import InputError, closest
from glit.exporters.coco import export_coco
from glit.exporters.common_pictures import CommonPictures
from glit.exporters.fiftyone import export_fiftyone
from glit.exporters.goal import export_goal
from glit.exporters.grit import export_grit
from glit.exporters.hf import export_hf
from glit.exporters.lance import export_lance
from glit.exporters.mdetr import export_mdetr
from glit.exporters.odvg import export_odvg
from glit.exporters.webdataset import export_webdataset
from glit.exporters.without_grid import WithoutGrid
from glit.storage.outputs import new_folder

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset

Report = Callable[[int], None]
Exporter = Callable[["Dataset", Path, Report], None]

EXPORTERS: dict[str, Exporter] = {
    "coco": export_coco,
    "fiftyone": export_fiftyone,
    "goal": export_goal,
    "grit": export_grit,
    "hf": export_hf,
    "lance": export_lance,
    "mdetr": export_mdetr,
    "odvg": export_odvg,
    "webdataset": export_webdataset,
}
"""By the name that ``glit export --to`` takes."""
READ_BY: dict[str, str] = {
    "coco": "pycocotools",
    "fiftyone": "fo.Dataset.from_dir(…, dataset_type=fo.types.FiftyOneDataset)",
    "goal": "the published trainer of GOAL",
    "grit": "Parquet readers, Kosmos-2's loaders",
    "hf": "datasets.load_dataset",
    "lance": "lance",
    "mdetr": "pycocotools, MDETR's loaders",
    "odvg": "MM-Grounding-DINO, LLMDet",
    "webdataset": "webdataset",
}
"""The libraries and calls that read each format."""
WHOLE_TABLES = ("lance",)
"""Those that copy the dataset's own columns, and so all its regions."""
OF_REGIONS = ("goal", "grit", "mdetr", "odvg")
"""Formats of boxes; datasets of captions alone are written in the others."""
EMBEDDING: dict[str, Callable[..., None]] = {"lance": export_lance}
"""Those that take ``embeddings`` as well."""


def export(
    dataset: Dataset,
    *,
    to: str,
    output: Path,
    embeddings: str = "",
    grid: bool = True,
    reencode: bool = False,
    report: Report = lambda rows: None,
) -> None:
    """Write a dataset in another format.

    Args:
        dataset: a finished one.
        to: a key of :data:`EXPORTERS`.
        output: a folder that does not exist yet; it appears when everything is written.
        embeddings: the CLIP whose image embeddings go in beside; of :data:`EMBEDDING` alone.
        grid: False leaves out the regions of the grid; not for :data:`WHOLE_TABLES`.
        reencode: write pictures that are not JPEG, PNG or WebP as PNG; without it a warning says
            how many of them the format's readers may not take. Not for :data:`WHOLE_TABLES`.
        report: called with so many more rows that are written.

    Raises:
        InputError: no such format, the folder exists, the format takes no embeddings or has all
            columns of the dataset, or it wants regions and there are captions alone.
        DatasetError: a file of the dataset is damaged.
    """
    if to not in EXPORTERS:
        raise InputError(f"--to {to}: no such format; {closest(to, EXPORTERS)}")
    if embeddings and to not in EMBEDDING:
        raise InputError(f"--embeddings: --to {to} has no place for them; want --to lance")
    if not grid:
        if to in WHOLE_TABLES:
            raise InputError(f"--no-grid: --to {to} has all columns of the dataset; want another")
        dataset = WithoutGrid(dataset)
    if reencode and to in WHOLE_TABLES:
        raise InputError(f"--reencode: --to {to} has all columns of the dataset; want another")
    if to not in WHOLE_TABLES:
        dataset = CommonPictures(dataset, reencode=reencode)
    if to in OF_REGIONS:
        require_regions(dataset.manifest, dataset.path, wanted_by=f"--to {to} writes")
    with new_folder(output) as partial:
        if embeddings:
            EMBEDDING[to](dataset, partial, report, embeddings=embeddings)
        else:
            EXPORTERS[to](dataset, partial, report)
    if isinstance(dataset, CommonPictures):
        dataset.warn(to)
