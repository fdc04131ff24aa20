"""A build stops when its models have written as much as the user pays for."""

from __future__ import annotations

import pytest
from building import data_bytes, noise, run_build
from chat_server import Server

import glit
from glit.errors import RunError, StoppedError, UserError
from glit.models.backends.protocols import Meter
from glit.pipeline import stage_task
from glit.runtime.limits import Limits

CAPTION = "A red ball lies on a green field. A blue box stands behind it."


class Counting(Server):
    """Says that every caption took a hundred tokens, if it says anything of tokens."""

    def __init__(self, *, counts=True):
        super().__init__()
        self.usage = {"total_tokens": 100} if counts else None

    def answer(self, body):
        choice = {"message": {"content": CAPTION}, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": self.usage}


@pytest.fixture
def photographs(tmp_path):
    return noise(tmp_path / "photographs", 8)


def build(photographs, output, server, most=None):
    settings = ["backend=endpoint", "model=m", f"endpoint={server.url}", "retries=0"]
    overrides = ["ingest.chunk_size=2", *(f"caption.{each}" for each in settings)]
    return run_build(photographs, output, overrides=overrides, limits=Limits(tokens=most))


def test_a_build_stops_when_its_tokens_are_used_and_says_what_is_left(photographs, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    with Counting() as server:
        with pytest.raises(StoppedError, match="stopped after 400 tokens, .* left: caption 4;"):
            build(photographs, out, server, 300)
        assert len(server.requests) == 4
        with pytest.raises(
            StoppedError, match="after 400 tokens, by --max-tokens 400; .*: caption 4;"
        ):
            build(photographs, out, server, 400)  # tokens of all runs count
        assert len(server.requests) == 4
        assert build(photographs, out, server, 800).counts.shipped == 8
        assert len(server.requests) == 8
        build(photographs, whole, server)
    assert data_bytes(out) == data_bytes(whole)


def test_answers_that_cannot_be_used_cost_tokens_too(photographs, tmp_path):
    with Counting() as server:
        server.answer = lambda body: (200, {}, {
            "choices": [{"message": {"content": "I'm sorry, but I cannot."}}],
            "usage": {"total_tokens": 50},
        })  # fmt: skip
        with pytest.raises(StoppedError, match="stopped after 200 tokens"):  # each is asked twice
            build(photographs, tmp_path / "out", server, 200)


def test_a_limit_that_nothing_counts_towards_is_refused(photographs, scenes, tmp_path):
    with (
        Counting(counts=False) as server,
        pytest.raises(RunError, match="does not say how many tok"),
    ):
        build(photographs, tmp_path / "out", server, 300)
    captions = scenes / "captions.jsonl"
    with pytest.raises(UserError, match="no stage of this recipe has a model that counts tokens"):
        run_build(scenes / "images", tmp_path / "own", captions=captions, limits=Limits(tokens=1))
    with pytest.raises(UserError, match="max_tokens 0: want 1 or more"):
        glit.build(photographs, tmp_path / "none", recipe="captions-only", max_tokens=0)


def test_one_caption_for_all_images_stops_a_build(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_task, "MOST_SAME", 5)
    settings = ["caption.backend=endpoint", "caption.model=m"]
    with Counting() as server, pytest.raises(RunError, match="first 5 captions are all the same"):
        settings = [*settings, f"caption.endpoint={server.url}"]
        run_build(photographs, tmp_path / "out", overrides=settings)
    assert not list((tmp_path / "out").glob("work/caption-*/*"))  # nothing of them is kept


def test_a_meter_that_threads_share_loses_nothing():
    from concurrent.futures import ThreadPoolExecutor

    meter = Meter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: meter.add(tokens=number, requests_repeated=1), range(1000)))
    assert meter.take() == (499_500, 1000)
