"""Exporters: one file per format, registered in :data:`EXPORTERS`.

An exporter is a function of the finished dataset, an empty folder, and a callback that receives the
number of rows written since its last call. It iterates row by row, so memory use stays flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.dataset.manifest import require_regions
from glit.errors import InputError, closest
from glit.exporters.annotations import export_annotations
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
    """An :data:`Exporter`; it has a keyword ``embeddings`` if ``takes_embeddings``."""
    read_by: str = ""
    """The libraries or the call that read it."""
    needs_regions: bool = False
    """True for a format of boxes alone; a dataset of captions alone is refused."""
    has_all_columns: bool = False
    """True if it copies the dataset's own columns, and so all regions and pictures."""
    takes_embeddings: bool = False
    """True if image embeddings may go in beside."""
    has_images: bool = True
    """False if it never holds the pictures."""
    may_lack_images: bool = False
    """True if it can be written without the pictures: it then has a keyword ``images``."""


EXPORTERS: dict[str, ExportFormat] = {
    "coco": ExportFormat(write=export_coco, read_by="pycocotools"),
    "fiftyone": ExportFormat(
        write=export_fiftyone,
        read_by="fo.Dataset.from_dir(…, dataset_type=fo.types.FiftyOneDataset)",
    ),
    "goal": ExportFormat(
        write=export_goal, read_by="the published trainer of GOAL", needs_regions=True
    ),
    "grit": ExportFormat(
        write=export_grit, read_by="Parquet readers, Kosmos-2's loaders", needs_regions=True
    ),
    "hf": ExportFormat(write=export_hf, read_by="datasets.load_dataset", may_lack_images=True),
    "lance": ExportFormat(
        write=export_lance, read_by="lance", has_all_columns=True, takes_embeddings=True
    ),
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
    """Write a dataset in another format.

    Args:
        dataset: a finished one.
        to: a key of :data:`EXPORTERS`.
        output: a folder that does not exist yet; it appears when everything is written.
        embeddings: the CLIP whose image embeddings go in beside, if the format takes them.
        grid: False leaves out the regions of the grid; not for formats with all columns.
        reencode: write pictures that are not JPEG, PNG or WebP as PNG; without it a warning says
            how many of them the format's readers may not take. Not for formats with all columns.
        images: False leaves out the pictures, if the format can; their hashes and thumbnails then
            go in.
        thumbnails: False leaves out the thumbnails too.
        report: called with so many more rows that are written.

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
    if embeddings and not kind.takes_embeddings:
        able = " or ".join(name for name, each in EXPORTERS.items() if each.takes_embeddings)
        raise InputError(f"--embeddings: --to {to} has no place for them; want --to {able}")
    for option, given in (("--no-grid", not grid), ("--reencode", reencode)):
        if given and kind.has_all_columns:
            raise InputError(f"{option}: --to {to} has all columns of the dataset; want another")
    if reencode and not images:
        raise InputError("--reencode: there is nothing to encode with --without-images")
    further = _further(to, kind, images=images, thumbnails=thumbnails)
    if embeddings:
        further["embeddings"] = embeddings
    if not grid:
        dataset = WithoutGrid(dataset)
    if not kind.has_all_columns and images:
        dataset = CommonPictures(dataset, reencode=reencode)
    if kind.needs_regions:
        require_regions(dataset.manifest, dataset.path, wanted_by=f"--to {to} writes")
    with new_folder(output) as partial:
        kind.write(dataset, partial, report, **further)
    if isinstance(dataset, CommonPictures):
        dataset.warn(to)


def _further(to: str, kind: ExportFormat, *, images: bool, thumbnails: bool) -> dict[str, Any]:
    """Return the keywords of a writer that say whether there are pictures and thumbnails.

    Raises:
        InputError: the format cannot be so.
    """
    if not images and kind.has_images and not kind.may_lack_images:
        able = [name for name, each in EXPORTERS.items() if each.may_lack_images]
        raise InputError(
            f"--without-images: --to {to} holds the pictures; want --to annotations, or "
            f"{' or '.join(able)}"
        )
    if not thumbnails and images and kind.has_images:
        raise InputError("--no-thumbnails: is for --to annotations and --without-images")
    if kind.has_images and images:
        return {}
    return {"thumbnails": thumbnails, **({"images": False} if kind.has_images else {})}
