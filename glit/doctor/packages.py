"""Compare installed packages with the tested versions and a recipe's extras."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from glit.doctor.finding import Finding
from glit.errors import MissingExtraError
from glit.installation import DISTRIBUTION
from glit.recipes.extras import MODULES, missing_packages, require_all
from glit.recipes.resources import tested_versions
from glit.stages import flow
from glit.stages.plan import Recipe


def packages(recipe: Recipe) -> Iterator[Finding]:
    """Report other than the tested versions, and the extras."""
    other, same = [], 0
    for name, tested in sorted(tested_versions().items()):
        installed = _installed(name)
        if name not in _direct() or installed is None:
            continue
        if installed.partition("+")[0] == tested.partition("+")[0]:
            same += 1
        else:
            other.append(f"{name} {installed} ({tested} is tested)")
    found = f"{same} as tested" + (f", {len(other)} not: {', '.join(other)}" if other else "")
    yield Finding(
        about="packages",
        state="note" if other else "ok",
        found=found,
        todo="pip install -c manifests/constraints.txt, if something fails" if other else "",
    )
    absent = [each.extra for each in missing_packages(dict.fromkeys(MODULES, ""))]
    yield Finding(
        about="extras",
        state="ok",
        found=f"here: {', '.join(e for e in MODULES if e not in absent) or 'none'}"
        + (f"; not installed: {', '.join(absent)}" if absent else ""),
    )
    try:
        require_all(flow(recipe.tables).extras(recipe))
    except MissingExtraError as error:
        what, _, todo = str(error).partition("; ")
        yield Finding(about="extras", state="fails", found=what, todo=todo)


def _direct() -> set[str]:
    """The packages that glit itself asks for, without those that they bring along."""
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # a checkout on the path
        return {"duckdb", "numpy", "pillow", "pyarrow", "ray", "torch", "transformers", "vllm"}
    return {_plain(re.split(r"[\s;<>=!~\[]", line, maxsplit=1)[0]) for line in wanted}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
