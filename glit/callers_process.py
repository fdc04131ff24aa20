"""Settings of a whole process that models and libraries change, put back for whoever called."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def kept_random_states() -> Iterator[None]:
    """Random states of Python, NumPy and torch are afterwards as they were."""
    import torch

    python, legacy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """No progress bars of transformers inside; afterwards as the caller had it."""
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()
