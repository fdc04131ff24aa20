"""Nothing moves unseen; regenerate with ``python -m tools.golden``, which prints what changes."""

import json

import pytest

from tools import golden

NOISE = {
    **dict.fromkeys(("x0", "y0", "x1", "y1"), 0.05),  # pixels
    **dict.fromkeys(("mean_logprob", "min_logprob"), 0.02),
}
"""By field; 1e-3 for the others."""


def assert_close(found, wanted, where=""):
    """Equal, floats to the noise between processors."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            assert_close(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert_close(a, b, f"{where}[{index}]")
    elif isinstance(wanted, float):
        noise = NOISE.get(where.rsplit(".", 1)[-1], 1e-3)
        assert found == pytest.approx(wanted, abs=noise), where
    else:
        assert found == wanted, where


@pytest.fixture(scope="module")
def scenes():
    with golden.scenes() as folder:
        yield folder


def kept(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_rows_of_a_mini_dataset(scenes):
    assert_close(golden.make_rows(scenes), kept(golden.ROWS))


def test_the_bytes_of_its_data_files(scenes):
    assert golden.make_bytes(scenes, kept(golden.ROWS)) == kept(golden.BYTES)


def test_the_fingerprints_of_every_recipe():
    assert golden.make_fingerprints() == kept(golden.FINGERPRINTS)
