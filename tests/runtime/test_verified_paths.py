"""A fast path is used only where it gives the plain path's numbers; else one warning and the plain."""

from __future__ import annotations

import warnings

import pytest
import torch

from glit.runtime.verified_paths import FastPathWarning, agrees, probe_input

pytestmark = pytest.mark.usefixtures("fresh_verdicts")
WANTED = torch.tensor([1.0, -200.0])


def check(found, *, wanted=(WANTED,), kind="a model", runs=None):
    def fast():
        if runs is not None:
            runs.append(kind)
        if isinstance(found, Exception):
            raise found
        return found

    return agrees(
        "a sum", package="numpy", kind=kind, fast=fast, plain=lambda: [w.clone() for w in wanted]
    )


def test_rounding_is_no_difference_and_the_check_runs_once_for_a_kind_of_model():
    runs = []
    assert check([WANTED + 0.01], runs=runs) and check([WANTED + 0.01], runs=runs)
    assert runs == ["a model"]
    assert check([WANTED], runs=runs, kind="another") and runs == ["a model", "another"]


@pytest.mark.parametrize(
    "found, fault",
    [
        ([WANTED + 0.03], "gives other numbers (by up to 0.03, where the largest is 2e+02)"),
        ([WANTED * torch.nan], "gives other numbers (by up to nan"),
        ([WANTED[:1]], "gives torch.float32 [1] instead of torch.float32 [2]"),
        ([WANTED.double()], "gives torch.float64 [2] instead of torch.float32 [2]"),
        ([WANTED, WANTED], "fails (ValueError: zip"),
        (AttributeError("no _private\n  name"), "fails (AttributeError: no _private name)"),
    ],
)
def test_whatever_is_wrong_is_one_line_with_the_packages_version(found, fault):
    import numpy

    with pytest.warns(FastPathWarning) as caught:
        assert not check(found)
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith("glit's fast path for a sum " + fault)
    assert f"with numpy {numpy.__version__}; the plain path is used" in message
    assert "\n" not in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not check(found)  # known by now


def test_a_model_with_nan_says_nothing_of_the_next_one():
    with pytest.warns(FastPathWarning, match=r"cannot be checked \(NaN\)"):
        assert not check([WANTED], wanted=[WANTED * torch.nan])
    assert check([WANTED])


def test_lower_precision_may_be_apart_by_its_rounding():
    wanted = WANTED.bfloat16()
    assert check([wanted * 1.01], wanted=[wanted])
    with pytest.warns(FastPathWarning, match="other numbers"):
        assert not check([wanted * 1.1], wanted=[wanted], kind="another")


def test_a_package_may_be_of_unknown_version():
    with pytest.warns(FastPathWarning, match="with no-such-package of unknown version"):
        agrees("x", package="no-such-package", kind=0, fast=lambda: [], plain=lambda: [WANTED])


def test_the_probes_numbers_leave_the_random_state_alone():
    before = torch.random.get_rng_state()
    like = torch.zeros(1, dtype=torch.bfloat16)
    a, b, c = (probe_input(3, 4, like=like, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c) and a.dtype == torch.bfloat16
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_gpu_that_failed_is_no_verdict_on_a_fast_path():
    with pytest.raises(RuntimeError, match="illegal memory access"):
        check(RuntimeError("CUDA error: an illegal memory access was encountered"))
