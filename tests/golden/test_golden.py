"""The mini dataset of six scenes is what it was; regenerate with ``python -m tools.golden``."""

import json

import pytest

from tools.golden import GOLDEN, make


def assert_close(found, wanted, where=""):
    """Equal, floats to the noise between processors: 0.05 for pixels, 1e-3 for the rest."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            assert_close(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert_close(a, b, f"{where}[{index}]")
    elif isinstance(wanted, float):
        in_pixels = where.rsplit(".", 1)[-1] in ("x0", "y0", "x1", "y1")
        assert found == pytest.approx(wanted, abs=0.05 if in_pixels else 1e-3), where
    else:
        assert found == wanted, where


def test_the_golden_dataset():
    assert_close(make(), json.loads(GOLDEN.read_text(encoding="utf-8")))
