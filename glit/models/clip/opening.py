"""Open a CLIP by name. Importing this module loads no model library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glit.recipes.extras import require

if TYPE_CHECKING:
    from glit.models.clip.embedder import Embedder


def open_embedder(model: str, *, needed_for: str, **options: Any) -> Embedder:
    """Open a CLIP by name, where torch may be missing.

    Args:
        model: a name, a folder, a run or a hub id.
        needed_for: the option that needs it, for messages.
        options: of :meth:`glit.models.clip.embedder.Embedder.open`.

    Raises:
        MissingExtraError: the extra ``models`` is not installed.
        WeightsError: there is no such model.
    """
    require("models", needed_for=needed_for)
    from glit.models.clip.embedder import Embedder

    return Embedder.open(model, **options)
