"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

import glit

ROOT = Path(glit.__file__).parent
MODULES = sorted(
    ".".join(["glit", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(
        importlib.import_module(name), extraglobs={"np": np, "torch": torch}, report=False
    )
    assert found.attempted and not found.failed
