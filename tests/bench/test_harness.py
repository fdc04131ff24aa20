"""The benchmarks' harness: what is kept is not measured again, and processes end in time."""

from __future__ import annotations

import os

import pytest

from glit.bench.harness import in_own_process, kept, run_command
from glit.errors import GlitError


def test_what_is_kept_is_not_measured_again(tmp_path) -> None:
    path = tmp_path / "new" / "figures.json"
    assert kept(path, lambda: {"a": 1}) == {"a": 1}
    assert kept(path, lambda: pytest.fail("measured twice")) == {"a": 1}


def test_a_command_that_fails_says_its_last_words(tmp_path) -> None:
    ended = run_command(["json.tool", str(tmp_path / "none.json")], tmp_path / "log")
    assert ended.code not in (0, None) and "none.json" in ended.failure
    assert run_command(["platform"], tmp_path / "log").failure == ""


def test_a_command_that_takes_too_long_is_ended(tmp_path) -> None:
    ended = run_command(["http.server", "0"], tmp_path / "log", most_s=0.2)
    assert ended.code is None and ended.failure.endswith(" s, its time")


def test_a_function_runs_in_another_process_and_its_error_comes_back() -> None:
    assert in_own_process(os.getpid) != os.getpid()
    with pytest.raises(GlitError, match="a word"):
        in_own_process(_fail, "a word")


def _fail(word: str) -> None:
    raise GlitError(word)
