"""What a caption server wrote before its build ended is not asked for again."""

from __future__ import annotations

import pytest
from building import data_bytes, noise, run_build
from chat_server import Server, ok

from glit.errors import RunError, UserError
from glit.pipeline import stage_task

CAPTION = "A red ball lies on a green field. A blue box stands behind it."


class OutOfMoney(Server):
    """Writes a number of captions, and refuses the key after them."""

    def __init__(self, number):
        super().__init__()
        self.left = number

    def answer(self, body):
        self.left -= 1
        return ok(CAPTION) if self.left >= 0 else (402, {}, {"error": {"message": "no credit"}})


@pytest.fixture
def photographs(tmp_path):
    return noise(tmp_path / "photographs", 7)


def build(photographs, output, server, *more):
    settings = ["backend=endpoint", "model=m", f"endpoint={server.url}", "retries=0"]
    settings = [f"caption.{each}" for each in [*settings, *more]]
    return run_build(photographs, output, overrides=settings)


def test_answers_that_were_paid_for_are_kept_when_a_build_ends(photographs, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    with OutOfMoney(99) as server:
        build(photographs, whole, server)
    with OutOfMoney(4) as server, pytest.raises(UserError, match="HTTP 402 .no credit"):
        build(photographs, out, server)
    with OutOfMoney(99) as server:
        build(photographs, out, server)
        assert len(server.requests) == 3
    assert data_bytes(out) == data_bytes(whole)


def test_a_server_that_fails_on_all_in_one_way_ends_the_build(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_task, "MOST_ALIKE", 5)
    with (
        OutOfMoney(0) as server,
        pytest.raises(RunError, match="the first 5 samples all failed as refusal; the last: "),
    ):
        server.answer = lambda body: ok("I'm sorry, but I cannot help with that.")
        build(photographs, tmp_path / "out", server)


def test_a_server_that_fails_on_some_does_not(photographs, tmp_path, monkeypatch):
    """One that is answered, or another reason, and the rest are drops of their own."""
    monkeypatch.setattr(stage_task, "MOST_ALIKE", 5)
    seen = []

    def answer(body):
        seen.append(body)
        return ok(CAPTION if len(seen) == 3 else "I'm sorry, but I cannot help with that.")

    with Server() as server:
        server.answer = answer
        counts = build(photographs, tmp_path / "out", server, "batch_size=1").counts
    assert counts.shipped == 1 and counts.drops == {"caption/refusal": 6}
