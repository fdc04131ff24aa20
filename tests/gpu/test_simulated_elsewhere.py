"""What other tests try on a simulated GPU, on the real one; skipped where there is none.

Numbers of waits are not counted here, and the tests that do nothing else are left out.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
MODULES = []
for _room in ("backends", "evaluation", "training"):
    _path = Path(__file__).parents[1] / _room / "test_on_pretended_cuda.py"
    _spec = importlib.util.spec_from_file_location(f"{_room}_on_gpu", _path)
    _module = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = _module
    _spec.loader.exec_module(_module)
    MODULES.append(_module)
    for _name in dir(_module):
        if _name.startswith("test_") or _name in ("pictures", "gpu_run"):
            globals()[_name] = getattr(_module, _name)
del globals()["test_a_crop_is_two_launches"]


@pytest.fixture(autouse=True)
def no_simulation(monkeypatch):
    for module in MODULES:
        monkeypatch.setattr(module, "pretend_cuda", nullcontext)
