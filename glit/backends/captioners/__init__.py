"""Where captions come from. Backends that look at the image are made of ``(config, model,
prompt)``, those that look captions up of the user's :class:`~.brought.BroughtCaptions` (or None).
"""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.captioners.brought import PROVIDED, SIDECAR
from glit.backends.captioners.endpoint import ENDPOINT
from glit.backends.captioners.transformers_generate import TRANSFORMERS
from glit.backends.captioners.vllm_engine import VLLM

CAPTIONERS: dict[str, Backend] = {
    "vllm": VLLM,
    "endpoint": ENDPOINT,
    "transformers": TRANSFORMERS,
    "provided": PROVIDED,
    "sidecar": SIDECAR,
}
"""By the name that ``caption.backend`` takes; none imports its engine before it is made."""
