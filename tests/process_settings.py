"""What a library must leave as it was in its caller's process."""

from __future__ import annotations

import csv
import os
import random
import signal
import warnings
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from transformers.utils import logging


def settings_of_the_process() -> dict[str, object]:
    return {
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
        "verbosity": logging.get_verbosity(),
        "bars": logging.is_progress_bar_enabled(),
        "pixels": Image.MAX_IMAGE_PIXELS,
        "csv": csv.field_size_limit(),
        "filters": [one for one in warnings.filters if one[1:] == (None, Warning, None, 0)],
        "interrupt": signal.getsignal(signal.SIGINT),
        "random": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "tf32": tf32_settings(),
        "folder": os.getcwd(),
    }


def tf32_settings() -> dict[str, object]:
    """Torch's settings for float32 products, the newer ones and the older, by name."""
    backends = torch.backends
    older = {
        "cudnn.allow_tf32": lambda: backends.cudnn.allow_tf32,
        "matmul.allow_tf32": lambda: backends.cuda.matmul.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
    }
    return {
        "all": backends.fp32_precision,
        "cuda": backends.cudnn.fp32_precision,
        "matmul": backends.cuda.matmul.fp32_precision,
        "conv": backends.cudnn.conv.fp32_precision,
        "rnn": backends.cudnn.rnn.fp32_precision,
        **{name: _read(read) for name, read in older.items()},
    }


def _read(read: Callable[[], object]) -> object:
    """Or the error: the older settings cannot be read where the newer ones disagree with them."""
    try:
        return read()
    except RuntimeError:
        return "unreadable"
