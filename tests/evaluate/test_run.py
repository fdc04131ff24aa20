"""One evaluation: what is refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from glit.errors import UserError
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.run import evaluate


def test_false_sentences_with_another_task_are_refused_and_not_measured_as_robustness():
    given = Path("false.jsonl")
    with pytest.raises(UserError, match="belongs to robustness, not to retrieval"):
        evaluate("retrieval", ["model"], "dataset", EvaluateConfig(), false_sentences=given)
