"""Models whose image processor enlarges every image, and how they are kept from it.

Idefics3 and SmolVLM enlarge an image to a longer side of some thousand pixels before they cut it
into tiles, however small it is: SmolVLM-256M makes 13 or 17 tiles of a picture of 512 pixels.
"""

from __future__ import annotations

import json
from typing import Any

from glit.models.weights import Resolved

_FILES = ("processor_config.json", "preprocessor_config.json")


def limited_size(model: Resolved | None, max_image_side: int) -> dict[str, Any]:
    """Return the arguments of an image processor that enlarge no image beyond a longer side.

    Args:
        model: a folder with a model; of others nothing is known.
        max_image_side: the longer side in pixels; 0 leaves the processor its own.

    Returns:
        No arguments, if the processor does not enlarge, or not beyond that.
    """
    if model is None or not max_image_side or not model.path.is_dir():
        return {}
    for name in _FILES:
        try:
            said = json.loads((model.path / name).read_text(encoding="utf-8"))
            said = said.get("image_processor", said)
            own, tile = (said[key]["longest_edge"] for key in ("size", "max_image_size"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        longest = max(tile, max_image_side)
        return {"size": {"longest_edge": longest}} if longest < own else {}
    return {}
