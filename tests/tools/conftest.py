"""Fixtures for tests of tools."""

from __future__ import annotations

import importlib

import pytest

from tools.measure.console import ended


@pytest.fixture
def run_tool(monkeypatch, capsys):
    """Runs ``python -m tools.measure.NAME`` in this process: exit code, output, errors."""

    def run(name: str, *words) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", [name, *map(str, words)])
        code = 0
        try:
            ended(importlib.import_module(f"tools.measure.{name}").main)
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run
