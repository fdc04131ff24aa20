"""How a worker's process is prepared, and that a borrowed one is given back as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from glit.executors import process

TRIM, MMAP = -1, -3  # malloc.h


@pytest.mark.parametrize(
    "largest, settings",
    [
        (1 << 62, {MMAP: 1 << 30, TRIM: 1 << 30}),
        (1 << 25, {MMAP: 1 << 25, TRIM: 1 << 30}),  # an older glibc
        (0, {}),  # what it adjusts by itself is better than the trim threshold alone
    ],
)
def test_memory_is_kept_as_far_as_malloc_allows(monkeypatch, largest, settings):
    set_to = {}

    def mallopt(what, value):
        if what == MMAP and value > largest:
            return 0
        set_to[what] = value
        return 1

    monkeypatch.setattr(process.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setattr(process.sys, "platform", "linux")
    process.keep_freed_memory()
    assert set_to == settings


def test_a_libc_without_such_settings_is_left_alone(monkeypatch):
    monkeypatch.setattr(process.ctypes, "CDLL", lambda _: SimpleNamespace())
    process.keep_freed_memory()

    def missing(_):
        raise OSError("no such file")

    monkeypatch.setattr(process.ctypes, "CDLL", missing)
    process.keep_freed_memory()
