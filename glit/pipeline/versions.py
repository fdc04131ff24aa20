"""What a build loads: versions of Python, glit and the packages that the recipe's steps run on.

The list follows from the recipe, not from what a process happens to hold, so a build on Ray and
one in a single process write the same bytes.
"""

from __future__ import annotations

import platform

import pyarrow as pa

from glit.dataset.manifest import installed_packages
from glit.errors import DamagedTableError
from glit.pipeline.stage_task import disk_error
from glit.pipeline.tables import read_table
from glit.pipeline.work import Work
from glit.recipes.extras import DISTRIBUTIONS
from glit.stages import flow
from glit.stages.plan import Recipe
from glit.stages.split import SplitConfig
from glit.storage.checksummed_parquet import write_sealed
from glit.version import __version__

_FILE = "versions.parquet"
_SCHEMA = pa.schema([("package", pa.string()), ("version", pa.string())])
_ALWAYS = ("duckdb", "numpy", "pillow", "pyarrow", "simplejpeg")


def versions_of(recipe: Recipe) -> dict[str, str]:
    """Versions by package of all that shapes a dataset of this recipe, ``python`` among them."""
    names = {*_ALWAYS}
    if recipe.of(SplitConfig).splitter == "sentencex":
        names.add("sentencex")
    for step in flow(recipe.tables).steps:
        for extra in step.extras(recipe):
            names.update(DISTRIBUTIONS[extra])
    return {"python": platform.python_version(), **installed_packages(sorted(names))}


def note_versions(work: Work) -> None:
    """Keep in the work folder that these versions write tables into it.

    Raises:
        RunError: the disk is full or cannot be written to.
    """
    noted = _noted(work)
    merged = sorted({*noted, *_now(work).items()})
    if merged == noted:
        return
    columns = list(zip(*merged, strict=True))
    table = pa.table(dict(zip(_SCHEMA.names, columns, strict=True)), schema=_SCHEMA)
    try:
        with work.store.atomic(_FILE) as path:
            write_sealed(table, path)
    except OSError as error:
        raise disk_error(error, work.store.root) from error


def earlier_versions(work: Work) -> dict[str, list[str]]:
    """Other versions, by package, that wrote into the work folder before those of now.

    Whether one of their tables is in the dataset is not told: a version is no part of a
    fingerprint. Of packages that the recipe of now does not use nothing is told.
    """
    now = _now(work)
    other: dict[str, list[str]] = {}
    for name, version in _noted(work):
        if name in now and version != now[name]:
            other.setdefault(name, []).append(version)
    return other


def _now(work: Work) -> dict[str, str]:
    return {"glit": __version__, **versions_of(work.plan.recipe)}


def _noted(work: Work) -> list[tuple[str, str]]:
    """Packages and versions, sorted; none where the note was lost: no build stops for that."""
    try:
        rows = read_table(work.store, _FILE).to_pylist()
    except DamagedTableError:  # or not there yet
        return []
    return [(row["package"], row["version"]) for row in rows]
