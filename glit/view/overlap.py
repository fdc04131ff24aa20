"""The page of images of a dataset beside those of a list that they are or resemble."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from PIL import Image

from glit.data.reference_list import Reference, ReferenceList
from glit.dataset.reader import Dataset, RowGroupCache
from glit.images import ImageError
from glit.images.thumbnails import data_url, thumbnail
from glit.version import __version__
from glit.view.originals import Originals
from glit.view.page_file import json_for_html, page_html
from glit.view.report import page_title, write_page

if TYPE_CHECKING:
    from glit.curate.references import Overlap

_MOST = 300
"""Pairs on a page, which stays under 15 MB."""
_SIDE, _BYTES = 400, 16 << 10


def write_overlap_page(
    output: Path,
    dataset: Dataset,
    found: Sequence[Overlap],
    *,
    references: ReferenceList,
    images: str,
) -> None:
    """Write the page, pairs in the dataset's order, the first :data:`_MOST`.

    Args:
        output: the file; one that exists is replaced.
        dataset: the one that was compared.
        found: its images that are in the list.
        references: the list.
        images: the folder or address of the list's images; empty shows its own small grey
            pictures.

    Raises:
        InputError: the file cannot be written.
    """
    originals = Originals(images)
    wanted = {each.sample_id for each in found[:_MOST]}
    ids = dataset.table(["sample_id"])["sample_id"].to_pylist()
    number = {sample_id: n for n, sample_id in enumerate(ids) if sample_id in wanted}
    pictures = RowGroupCache(dataset, capacity=1, columns=("sample_id", "source_path", "image"))
    pairs = [
        {
            "path": each.source_path,
            "name": each.found.name,
            "kind": each.found.kind,
            "correlation": each.found.correlation,
            "image": _own_picture(dataset, pictures, number[each.sample_id]),
            "reference": _reference_picture(references.named(each.found.name), originals),
        }
        for each in found[:_MOST]
    ]
    data = {"title": page_title(dataset.path), "list": PurePath(references.path).name,
            "images": len(dataset), "found": len(found), "pairs": pairs,
            "glit": __version__}  # fmt: skip
    html = page_html(
        json_for_html(data), images="data:", connect="'none'", further=("overlap",),
        of_dataset=False,
    )  # fmt: skip
    write_page(output, html)


def _own_picture(dataset: Dataset, pictures: RowGroupCache, number: int) -> str:
    group, row = dataset.locate(number)
    try:
        encoded = pictures.get(group).image(row)
        return data_url(thumbnail(encoded, max_side=_SIDE, max_bytes=_BYTES))
    except ImageError:
        return ""


def _reference_picture(reference: Reference, originals: Originals) -> dict[str, Any]:
    """The file where it can be read and is the one of the list, else the list's thumbnail."""
    image = originals.picture(reference.name, reference.sha256, max_side=_SIDE, max_bytes=_BYTES)
    if image:
        return {"image": image, "is_file": True}
    if not reference.thumbnail.any():  # only its hash is known
        return {"image": "", "is_file": False}
    small = io.BytesIO()
    Image.fromarray(reference.thumbnail).save(small, "WEBP", quality=80)
    return {"image": data_url(small.getvalue()), "is_file": False}
