"""The thread that feeds vLLM's engine, with an engine that fails on purpose."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from glit.errors import RecipeError
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.captioners.vllm_engine import _Steps, engine_arguments
from glit.models.weights import resolve
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.caption import CaptionConfig


class FakeEngine:
    """A request is finished after as many steps as its prompt says; "bad" ones are not taken, and
    a "poison" fails every step."""

    def __init__(self):
        self.left: dict[str, int | str] = {}
        self.most = 0
        self.aborted: list[str] = []

    def add_request(self, name, prompt, parameters):
        if prompt == "bad":
            raise ValueError("the prompt is too long")
        self.left[name] = prompt

    def step(self):
        self.most = max(self.most, len(self.left))
        if "poison" in self.left.values():
            raise RuntimeError("a kernel failed")
        self.left = {name: left - 1 for name, left in self.left.items()}
        done = [name for name, left in self.left.items() if left == 0]
        for name in done:
            del self.left[name]
        running = [SimpleNamespace(request_id=name, finished=False) for name in self.left]
        return running + [SimpleNamespace(request_id=name, finished=True) for name in done]

    def abort_request(self, names):
        self.aborted += names
        for name in names:
            del self.left[name]


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def steps(engine):
    running = _Steps(engine)
    yield running
    running.stop()
    assert not running._thread.is_alive()


def ask(steps, prompt):
    prepared, written = Future(), Future()
    if isinstance(prompt, Exception):
        prepared.set_exception(prompt)
    else:
        prepared.set_result((prompt, None))
    steps.add(prepared, written)
    return written


def test_requests_finish_when_they_are_done(engine, steps):
    written = [ask(steps, count) for count in (200, 3, 1, 50)]
    assert all(each.result(20).finished for each in written)
    assert engine.most > 1, "one after the other"


def test_errors_go_to_who_asked(steps):
    fine = ask(steps, 40)
    with pytest.raises(ValueError, match="too long"):
        ask(steps, "bad").result(20)
    with pytest.raises(OSError, match="no such tile"):
        ask(steps, OSError("no such tile")).result(20)
    assert fine.result(20).finished


def test_a_step_that_fails_is_an_error_of_all_at_work_and_of_none_after(engine, steps):
    beside = ask(steps, 10**9)
    with pytest.raises(RuntimeError, match="a kernel failed"):
        ask(steps, "poison").result(20)
    with pytest.raises(RuntimeError, match="a kernel failed"):
        beside.result(20)
    assert sorted(engine.aborted) == ["0", "1"]
    assert ask(steps, 2).result(20).finished


def test_who_still_waits_when_it_is_closed_gets_an_error(engine):
    steps = _Steps(engine)
    written = ask(steps, 10**9)
    steps.stop()
    with pytest.raises(RuntimeError, match="was closed"):
        written.result(20)


def test_what_the_engine_is_started_with():
    def arguments(*sets):
        recipe = load_recipe(
            "mini", overrides=["caption.backend=vllm", "caption.device=cuda", *sets]
        )
        return engine_arguments(recipe.caption, resolve("mini-captioner"))

    plain = arguments()
    assert "quantization" not in plain and plain["tensor_parallel_size"] == 1
    assert plain["enable_prefix_caching"] is False
    assert plain["performance_mode"] == "throughput"
    many = arguments("caption.quantization=fp8", "caption.tensor_parallel_size=4")
    assert (many["quantization"], many["tensor_parallel_size"]) == ("fp8", 4)
    recipe = load_recipe(
        "mini", overrides=["caption.backend=vllm", "caption.tensor_parallel_size=4"]
    )
    assert CAPTIONERS["vllm"].gpus(recipe.caption) == 4
    with pytest.raises(RecipeError, match="only GPUs hold a model together"):
        CAPTIONERS["vllm"].check(recipe.caption, None)
    for config in (CaptionConfig(backend="vllm"), None):
        assert CAPTIONERS["vllm"].gpus(config) == 1
