"""Every error of glit crosses a process as it is."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import glit
from glit.errors import (
    DamagedTableError,
    GlitError,
    MissingExtraError,
    MissingModelError,
    MissingPackage,
    StorageError,
)
from glit.images.errors import ImageError

MADE = {
    DamagedTableError: lambda: DamagedTableError("out", "a.parquet", "no digest"),
    MissingExtraError: lambda: MissingExtraError(
        MissingPackage(package="ray", extra="ray", needed_for="x")
    ),
    MissingModelError: lambda: MissingModelError("m", reason="not here", fetch="hf m"),
    ImageError: lambda: ImageError("corrupt", "a.png is cut"),
    StorageError: lambda: StorageError("s3://a", "refused", keys=True),
}
"""Of the classes that take more than a text."""


def kinds(kind: type[GlitError] = GlitError) -> Iterator[type[GlitError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


def modules_with_errors() -> None:
    for found in pkgutil.walk_packages(glit.__path__, "glit."):
        if found.name.endswith((".errors", ".stage_task", ".work.state")):
            importlib.import_module(found.name)


def test_every_error_crosses_a_process() -> None:
    modules_with_errors()
    for kind in {*kinds()}:
        if not kind.__module__.startswith("glit."):
            continue
        error = MADE.get(kind, lambda kind=kind: kind("where: what"))()
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found), vars(found)) == (kind, str(error), vars(error)), kind


@pytest.mark.parametrize("kind", MADE)
def test_their_own_values_too(kind) -> None:
    error = MADE[kind]()
    assert vars(error) and vars(pickle.loads(pickle.dumps(error))) == vars(error)
