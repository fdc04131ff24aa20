"""End a run whose model fails on everything."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from glit.backends.base import Backend
from glit.errors import RunError

MOST_ALIKE = 100
_ALL_FAILED = 8
_FAILURES = {"model_error", "captioner_error", "not_finite"}
_BAD_CAPTIONS = {"content_filter", "empty_caption", "looping", "refusal", "wrong_language"}


class FailuresAlike:
    """Ends a stage whose model gave nothing yet, always for the same reason."""

    def __init__(self, stage: str, backend: Backend | None) -> None:
        """For a stage; without a backend nothing is counted."""
        writes = backend is not None and backend.reads == "pixels" and stage == "caption"
        self._stage = stage
        self._reasons = _FAILURES | (_BAD_CAPTIONS if writes else set())
        self._lock = threading.Lock()
        self._is_on = backend is not None
        self._failed: list[str] = []

    def count(self, row: dict[str, Any]) -> None:
        """Count a row.

        Raises:
            RunError: it is the hundredth, and all failed for one reason.
        """
        drop = row.get("drop") or {}
        with self._lock:
            found = drop.get("reason", "")
            if found not in self._reasons or (self._failed and self._failed[0] != found):
                self._is_on = False  # the model works, or does not always fail in the same way
            if not self._is_on:
                return
            self._failed.append(found)
            if len(self._failed) < MOST_ALIKE:
                return
        raise RunError(
            f"stage {self._stage}: the first {MOST_ALIKE} samples all failed as {found}; the "
            f"last: {drop['message']}; change recipe, model or server, then run it again"
        )


def refuse_total_failure(stage: str, rows: Sequence[dict[str, Any]]) -> None:
    """Refuse a chunk of which the model failed on every sample.

    Raises:
        RunError: with the first failure.
    """
    failed = [row["drop"] for row in rows if (row.get("drop") or {}).get("reason") in _FAILURES]
    if len(rows) >= _ALL_FAILED and len(failed) == len(rows):
        raise RunError(
            f"stage {stage}: the model failed on all {len(rows)} samples of a chunk; "
            f"the first failure: {failed[0]['message']}"
        )
