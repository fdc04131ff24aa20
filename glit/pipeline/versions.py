"""What a build loads: versions of Python, glit and the packages that the recipe's steps run on.

The list follows from the recipe, not from what a process happens to hold, so a build on Ray and
one in a single process write the same bytes.
"""

from __future__ import annotations

import platform

from glit.dataset.manifest import installed_packages
from glit.pipeline.state import read_state, update_state
from glit.pipeline.work import Work
from glit.recipes.extras import DISTRIBUTIONS
from glit.stages import flow
from glit.stages.plan import Recipe
from glit.stages.split import SplitConfig
from glit.version import __version__

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
    """Keep in the state that these versions write tables."""
    noted = read_state(work.store).versions
    merged = tuple(sorted({*noted, *_now(work).items()}))
    if merged != noted:
        update_state(work.store, versions=merged)


def earlier_versions(work: Work) -> dict[str, list[str]]:
    """Other versions, by package, that wrote into the work folder before those of now.

    Whether one of their tables is in the dataset is not told: a version is no part of a
    fingerprint. Of packages that the recipe of now does not use nothing is told.
    """
    now = _now(work)
    other: dict[str, list[str]] = {}
    for name, version in read_state(work.store).versions:
        if name in now and version != now[name]:
            other.setdefault(name, []).append(version)
    return other


def _now(work: Work) -> dict[str, str]:
    return {"glit": __version__, **versions_of(work.plan.recipe)}
