"""Datasets in formats that others read: one file each.

An exporter is a function of the finished dataset and an empty folder. It goes through the rows one
by one, so that memory stays flat whatever the size.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from glit.errors import InputError, closest
from glit.export.coco import export_coco
from glit.export.goal import export_goal
from glit.export.grit import export_grit
from glit.export.hf import export_hf
from glit.export.lance import export_lance
from glit.export.mdetr import export_mdetr
from glit.export.webdataset import export_webdataset

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset

Exporter = Callable[["Dataset", Path], None]

EXPORTERS: dict[str, Exporter] = {
    "coco": export_coco,
    "goal": export_goal,
    "grit": export_grit,
    "hf": export_hf,
    "lance": export_lance,
    "mdetr": export_mdetr,
    "webdataset": export_webdataset,
}
"""By the name that ``glit export --to`` takes."""


def export(dataset: Dataset, *, to: str, output: Path) -> None:
    """Write a dataset in another format.

    Args:
        dataset: a finished one.
        to: a key of :data:`EXPORTERS`.
        output: a folder that does not exist yet; it appears when everything is written.

    Raises:
        InputError: no such format, or the folder exists.
        DatasetError: a file of the dataset is damaged.
    """
    if to not in EXPORTERS:
        raise InputError(f"--to {to}: no such format; {closest(to, EXPORTERS)}")
    if output.exists():
        raise InputError(f"-o {output}: exists already; choose another folder or remove it")
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        EXPORTERS[to](dataset, partial)
        os.replace(partial, output)
    except OSError as error:
        raise InputError(f"-o {output}: cannot write there ({error.strerror or error})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
