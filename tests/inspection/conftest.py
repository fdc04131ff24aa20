"""Pictures of the small files, and a function that audits a changed one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from annotations import noise

from glit import api

Audit = Callable[..., dict[str, list[str]]]


@pytest.fixture
def images(tmp_path) -> Path:
    """Six pictures of 200 by 150 pixels, ``0.png`` to ``5.png``."""
    for number in range(6):
        noise(tmp_path / "images" / f"{number}.png", seed=number, size=(200, 150))
    return tmp_path / "images"


@pytest.fixture
def audited(tmp_path, images) -> Audit:
    """``audited(rows or values, **options)``: names at fault by code, of ``.jsonl`` or ``.json``."""

    def audit(values: Any, **options: Any) -> dict[str, list[str]]:
        file = tmp_path / ("file.json" if isinstance(values, dict) else "file.jsonl")
        is_json = isinstance(values, dict)
        file.write_text(json.dumps(values) if is_json else "\n".join(map(json.dumps, values)))
        report = api.audit(file, **{"images": images, **options})
        return {f.code: [e.name for e in f.examples] for f in report.findings}

    return audit
