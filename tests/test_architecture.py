"""What holds of the tree as a whole."""

from __future__ import annotations

import fnmatch
from pathlib import Path

TESTS = Path(__file__).parent


def test_no_folder_of_tests_is_left_out(pytestconfig):
    """pytest passes over folders by name; one of its defaults is ``build``."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in TESTS.rglob("test_*.py")} - {TESTS}
    assert TESTS / "build" in folders
    for folder in folders:
        for name in folder.relative_to(TESTS).parts:
            assert not any(fnmatch.fnmatch(name, pattern) for pattern in left_out), folder
