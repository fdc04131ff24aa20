"""What a library must leave as it was in its caller's process."""

from __future__ import annotations

import csv
import os
import random
import signal
import warnings

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
        "tf32": torch.backends.cudnn.allow_tf32,
        "folder": os.getcwd(),
    }
