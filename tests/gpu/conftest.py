"""These tests have the GPU that all others are kept from."""

from __future__ import annotations

import cpu_only
import pytest


@pytest.fixture(scope="module", autouse=True)
def the_gpu():
    with cpu_only.as_it_is():
        yield
