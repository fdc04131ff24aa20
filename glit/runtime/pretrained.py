"""Load transformers models completely or raise an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glit.errors import WeightsError


def load_whole(kind: Any, folder: str | Path, **options: Any) -> Any:
    """Call ``kind.from_pretrained``; raise an error unless the files hold every weight.

    transformers draws those that the files lack at random and goes on; what the model answers then
    looks like a result.

    Args:
        kind: a class of transformers.
        folder: of the model.
        options: of ``from_pretrained``.

    Raises:
        WeightsError: weights are missing.
    """
    model, loaded = kind.from_pretrained(folder, output_loading_info=True, **options)
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise WeightsError(
            f"{folder}: {len(missing)} weights of a {type(model).__name__} are not in its files "
            f"(first: {missing[0]}); download it again, or convert it to that kind"
        )
    return model
