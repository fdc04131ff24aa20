"""The kernel that measures masks gives what masks made in full give, or is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pretend_cuda import pretend_cuda

from glit.backends.sam.gpu_masks import measures_at_once
from glit.runtime import verified_paths as fast_path
from glit.runtime.verified_paths import FastPathWarning


@pytest.mark.slow
def test_by_tritons_interpreter_it_measures_what_full_masks_hold(scenes):
    pytest.importorskip("triton", reason="torch brings it on Linux alone")
    script = Path(__file__).with_name("interpreted_measuring.py")
    done = subprocess.run(
        [sys.executable, script, min((scenes / "images").iterdir())],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "all measured alike\n", done.stderr


def test_a_kernel_that_cannot_be_compiled_is_not_used(monkeypatch, fresh_verdicts):
    with pretend_cuda():
        monkeypatch.setattr(fast_path, "_left_out", set())
        with pytest.warns(FastPathWarning, match="measuring SAM's masks fails"):
            assert not measures_at_once(torch.device("cuda"))
