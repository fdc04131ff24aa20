"""What a plan settles of a backend's configuration."""

from __future__ import annotations

import pytest

from glit.errors import RecipeError
from glit.models.backends import base
from glit.models.backends.base import Backend
from glit.models.backends.grounders import GROUNDERS
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.protocols import MatcherConfig

PLAIN = Backend(make=object)
EVERYWHERE = Backend(make=object, auto_precision={})
WITHOUT = Backend(make=object, needs_model=False)


@pytest.mark.parametrize(
    ("backend", "changes", "device", "wanted"),
    [
        (PLAIN, {}, "cpu", ("cpu", "float32")),
        (PLAIN, {}, "cuda", ("cuda", "bfloat16")),
        (PLAIN, {}, "mps", ("mps", "float32")),
        (PLAIN, {"device": "cpu"}, "cuda", ("cpu", "float32")),
        (PLAIN, {"precision": "float16"}, "cpu", ("cpu", "float16")),
        (EVERYWHERE, {}, "cuda", ("cuda", "float32")),
        (WITHOUT, {}, "cuda", ("cuda", "float32")),
    ],
)
def test_auto_becomes_a_device_and_a_precision(backend, changes, device, wanted):
    settled = backend.settled(MatcherConfig(batch_size=7, **changes), device)
    assert (settled.device, settled.precision, settled.batch_size) == (*wanted, 7)


def test_a_precision_without_a_model_is_said_to_be_ignored():
    with pytest.warns(UserWarning, match="score.precision = 'int8' is ignored"):
        settled = WITHOUT.settled(MatcherConfig(precision="int8"), "cpu")
    assert WITHOUT.settled(settled) == settled and settled.precision == "float32"


def test_what_is_settled_is_not_decided_again(monkeypatch):
    """Workers settle once more; their own device must not count."""
    planned = PLAIN.settled(MatcherConfig(), "cpu")
    monkeypatch.setattr(base, "best_device", lambda: "cuda")
    assert PLAIN.settled(planned) == planned
    assert PLAIN.settled(MatcherConfig()).device == "cuda"


def test_a_library_that_computes_in_float32_is_not_recorded_otherwise():
    for backend in (PROPOSERS["yolo"], GROUNDERS["ultralytics"]):
        with pytest.warns(UserWarning, match="'float16' is ignored: its model computes in float32"):
            settled = backend.settled(MatcherConfig(precision="float16"), "cuda")
        assert settled.precision == "float32"
        with pytest.raises(RecipeError, match="precision = 'int8'"):
            backend.settled(MatcherConfig(precision="int8"), "cpu")


def test_a_gpu_without_bfloat16_gets_float16_and_says_so(monkeypatch):
    monkeypatch.setattr(base, "lacks_bfloat16", lambda device: device == "cuda")
    with pytest.warns(UserWarning, match="this GPU has no bfloat16, so 'auto' is float16"):
        settled = PLAIN.settled(MatcherConfig(), "cuda")
    assert settled.precision == "float16" and PLAIN.settled(settled) == settled
