"""Save and restore process-wide settings that models and libraries change."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def kept_random_states() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch after the block.

    A GPU that nobody uses is not started for it: that takes seconds and half a gigabyte of the
    GPU's memory, in every worker.
    """
    import torch

    python, legacy = random.getstate(), np.random.get_state()
    started = torch.cuda.is_initialized()
    try:
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if started else []):
            yield
        if torch.cuda.is_initialized() and not started:
            torch.cuda.manual_seed_all(torch.initial_seed())  # as when it starts after this
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Turn off transformers' progress bars for the block."""
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()
