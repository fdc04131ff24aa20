"""Load a model of transformers and its processor from a folder."""

from __future__ import annotations

from typing import Any

from glit.backends.weights import Resolved
from glit.runtime.pretrained import as_weights_error, load_whole


def load_with_processor(
    processor: Any, kind: Any, model: Resolved, *, name: str, dtype: Any
) -> tuple[Any, Any]:
    """The processor and the model of a folder.

    Args:
        processor: a class of transformers.
        kind: a class of transformers.
        model: the folder.
        name: of such models, for the message.
        dtype: of the weights.

    Raises:
        WeightsError: they cannot be loaded.
    """
    with as_weights_error(f"model {model.name!r}: cannot be loaded as {name}"):
        made = processor.from_pretrained(str(model.path), local_files_only=True)
        return made, load_whole(kind, model.path, local_files_only=True, dtype=dtype)
