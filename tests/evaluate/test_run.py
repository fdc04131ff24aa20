"""One evaluation: its tasks, and what is refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from glit.cli.evaluate import TaskName
from glit.errors import UserError
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.run import evaluate
from glit.evaluate.tasks import TASKS


def test_false_sentences_with_another_task_are_refused_and_not_measured_as_robustness():
    given = Path("false.jsonl")
    with pytest.raises(UserError, match="belongs to robustness, not to retrieval"):
        evaluate("retrieval", ["model"], "dataset", EvaluateConfig(), false_sentences=given)


def test_the_command_line_knows_the_tasks():
    assert get_args(TaskName) == tuple(TASKS)
