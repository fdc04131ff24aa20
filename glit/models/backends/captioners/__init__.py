"""Captioners: models, and readers of existing captions.

Backends that read pixels are constructed with (config, model, prompt). Those that look captions up
are constructed with the user's :class:`~glit.inputs.lookup.BroughtCaptions`, or None.
"""

from __future__ import annotations

import dataclasses

from glit.models.backends.base import Backend
from glit.models.backends.captioners.endpoint import ENDPOINT
from glit.models.backends.captioners.transformers_generate import TRANSFORMERS
from glit.models.backends.captioners.vllm_engine import VLLM, check_any
from glit.models.backends.given import PROVIDED_CAPTIONS as PROVIDED
from glit.models.backends.given import SIDECAR

CAPTIONERS: dict[str, Backend] = {
    "vllm": VLLM,
    "endpoint": ENDPOINT,
    "transformers": TRANSFORMERS,
    "provided": PROVIDED,
    "sidecar": SIDECAR,
}
"""By their names in ``caption.backend``; model libraries are imported when one is constructed."""

LANGUAGE_MODELS: dict[str, Backend] = {
    "endpoint": dataclasses.replace(ENDPOINT, reads="nothing"),
    "vllm": dataclasses.replace(VLLM, reads="nothing", check=check_any),
}
"""Captioners that write texts without an image too, by their names in ``condense.backend``."""
