"""Captions of a server: what it is asked, and what is asked again, a drop, or the end of a run."""

from __future__ import annotations

import email.utils
import gc
import gzip
import json
import time
from contextlib import nullcontext

import httpx
import numpy as np
import pytest
from chat_server import Server, ok

from glit.data.records import DropError
from glit.errors import RecipeError, RunError, UserError
from glit.models.backends.captioners import CAPTIONERS, endpoint, http_exchange
from glit.models.backends.captioners.endpoint import _proxy, reach
from glit.models.backends.captioners.http_exchange import retry_after_s
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.caption import CaptionConfig

HALF = "A red ball lies on a green field. A blue box"
GREY = np.full((4, 4, 3), 200, np.uint8)
RATE = {"error": {"message": "Provider returned error", "code": 429}}


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(endpoint, "_wait_s", lambda *_: 0.0)


@pytest.fixture
def server():
    with Server() as running:
        yield running


def made(server, **options):
    options = {"endpoint": server.url, "retries": 2} | options
    config = CaptionConfig(backend="endpoint", model="m", **options)
    return CAPTIONERS["endpoint"].make(config, None, "Describe it.")


def ask(server, *answers, **options):
    server.answers = list(answers)
    return made(server, **options).caption([GREY], seeds=[0], temperature=0.0)[0]


def refused(server, *answers, **options):
    with pytest.raises(DropError) as said:
        ask(server, *answers, **options)
    return said.value


@pytest.mark.parametrize(
    ("reason", "cut"),
    [("eos_token", False), ("eos", False), ("stop_sequence", False), ("end_turn", False),
     ("STOP", False), ("FINISH_REASON_STOP", False), ("", True), (None, True),
     ("MAX_TOKENS", True), ("max_tokens", True), ("model_length", True)],
)  # fmt: skip
def test_finish_reasons_of_other_servers(server, reason, cut):
    found = ask(server, ok(HALF, reason))
    assert (found.text, found.cut) == (HALF, cut)
    assert ask(server, ok(HALF + ".", reason)).cut == (cut and bool(reason))


@pytest.mark.parametrize(
    "bad",
    [
        ok(HALF, "abort"),
        ok(HALF, "tool_calls"),
        (200, {}, RATE),
        (200, {}, {"error": "overloaded"}),
        (200, {}, {"choices": []}),
        (200, {}, {"choices": [{"finish_reason": "stop"}]}),
        (200, {}, b'{"choices": [{"message": {"content": "A red'),
        (200, {}, b""),
        (200, {}, b"[]"),
        (200, {"content-encoding": "gzip"}, b"not gzip at all"),
        (200, {"content-encoding": "gzip"}, gzip.compress(b"x" * 9999)[:20]),
        (429, {"retry-after": "0"}, {}),
        (500, {}, {}),
        (503, {}, {}),
        (529, {}, {}),
    ],
)
def test_what_may_pass_is_asked_again(server, bad):
    found = ask(server, bad, bad, ok("Whole."))
    assert (found.text, found.cut) == ("Whole.", False)
    assert len(server.requests) == 3


def test_answers_come_in_order_and_say_when_they_were_cut(server):
    server.answers = [ok("One."), ok("Two", "length")]
    found = made(server, batch_size=1).caption([GREY] * 2, seeds=[0, 1], temperature=0.0)
    assert [(c.text, c.cut) for c in found] == [("One.", False), ("Two", True)]
    content = server.requests[0]["messages"][0]["content"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert content[1] == {"type": "text", "text": "Describe it."}


def test_it_is_asked_for_json_where_a_recipe_wants_it(server):
    ask(server)
    ask(server, structured=True)
    plain, asked = server.requests
    assert "response_format" not in plain
    schema = asked["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["caption"]


def test_no_connection_is_left_open(server, monkeypatch):
    gc.collect()  # what other tests left
    closed = []
    plain = httpx.Client.close
    monkeypatch.setattr(httpx.Client, "close", lambda self: (closed.append(self), plain(self)))
    ask(server, ok("One."))
    gc.collect()
    assert len(closed) == 1


def test_a_server_that_is_not_there(server):
    with pytest.raises(RunError, match="is the server up"):
        ask(server, endpoint="http://127.0.0.1:9/v1", retries=0, timeout_s=2)


def test_an_answer_that_blames_the_image_concerns_only_that_image(server):
    assert (
        "HTTP 400 (image too odd" in refused(server, (400, {}, {"error": "image too odd"})).message
    )


def test_an_answer_that_is_never_finished_is_a_drop_that_says_how(server):
    drop = refused(server, *[ok(HALF, "abort")] * 3)
    assert drop.reason == "" and "finish_reason 'abort'" in drop.message


@pytest.mark.parametrize("finish", ["content_filter", "SAFETY"])
@pytest.mark.parametrize("text", [HALF, None])
def test_a_filtered_answer_is_a_drop_of_that_name_and_not_asked_again(server, finish, text):
    assert refused(server, ok(text, finish)).reason == "content_filter"
    assert len(server.requests) == 1


def test_a_prompt_that_is_filtered_is_a_drop_of_that_name(server):
    error = {"error": {"message": "The prompt was filtered", "code": "content_filter"}}
    drop = refused(server, (400, {}, error))
    assert drop.reason == "content_filter" and "The prompt was filtered" in drop.message


@pytest.mark.parametrize("status", [403, 404, 410])
def test_an_image_that_is_refused_is_its_own_drop_where_the_server_answers_otherwise(
    server, status
):
    flagged = (status, {}, {"error": {"message": "flagged: violence"}})
    drop = refused(server, flagged, ok("Grey."))
    assert f"HTTP {status} (flagged: violence)" in drop.message
    captioner = made(server)
    server.answers = [ok("One."), flagged]
    captioner.caption([GREY], seeds=[0], temperature=0.0)
    with pytest.raises(DropError):  # without a probe
        captioner.caption([GREY], seeds=[0], temperature=0.0)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [403, 404])
def test_what_is_refused_about_a_grey_image_too_ends_the_run(server, status):
    with pytest.raises(UserError, match=f"HTTP {status} .no such model.*caption.model"):
        ask(server, *[(status, {}, {"error": {"message": "no such model"}})] * 2)


@pytest.mark.parametrize("status", [401, 402])
def test_a_key_without_rights_ends_the_run_whatever_came_before(
    server, status, monkeypatch, caplog
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    captioner = made(server)
    server.answers = [ok("One."), (status, {}, {"error": "no credit"})]
    captioner.caption([GREY], seeds=[0], temperature=0.0)
    told = f"HTTP {status} .no credit.*check caption.endpoint"
    with caplog.at_level("DEBUG"), pytest.raises(UserError, match=told) as said:
        captioner.caption([GREY], seeds=[0], temperature=0.0)
    assert "sk-very-secret" not in f"{said.value}{caplog.text}"


def test_a_server_that_breaks_of_a_grey_image_too_ends_the_run(server):
    with pytest.raises(RunError, match="HTTP 500 after 3 tries"):
        ask(server, *[(500, {}, {})] * 4)


def test_an_image_that_always_breaks_the_server_is_its_own_drop(server):
    assert "HTTP 500" in refused(server, *[(500, {}, {})] * 3, ok("Grey.")).message


def test_a_server_that_says_it_is_busy_to_the_end_ends_the_run(server):
    with pytest.raises(RunError, match="HTTP 429 after 3 tries .Provider returned error"):
        ask(server, *[(200, {}, RATE)] * 3)


@pytest.mark.parametrize("onward", ["https://other.example/login", "/v1/chat/completions"])
def test_a_redirect_is_named_and_not_followed(server, onward):
    with pytest.raises(UserError, match=f"sends on to {onward}"):
        ask(server, *[(307, {"location": onward}, b"")] * 2)


def test_content_in_parts_is_put_together_without_thoughts(server):
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A red "},
             {"type": "text", "text": "ball."}]  # fmt: skip
    assert ask(server, ok(parts)).text == "A red ball."


@pytest.mark.parametrize("content", [7, {"text": "A ball."}, [{"type": "text", "text": 3}]])
def test_content_that_is_no_text_is_a_drop(server, content):
    assert "want a text" in refused(server, ok(content)).message


def test_thoughts_that_used_up_the_budget_are_told(server):
    drop = refused(server, ok(None, "length", reasoning_content="I look"), max_tokens=40)
    assert drop.reason == "empty_caption" and "all 40 tokens went into thinking" in drop.message
    alone = refused(server, ok("", "stop", reasoning="A ball."))
    assert "holds thoughts alone" in alone.message


def test_a_refusal_in_its_own_field_is_one(server):
    drop = refused(server, ok(None, refusal="I cannot describe this."))
    assert drop.reason == "refusal" and "I cannot describe this." in drop.message


@pytest.mark.parametrize("packed", [False, True])
def test_answers_without_end_are_not_read_to_it(server, packed):
    body = b" " * (http_exchange.MOST_BYTES + 1)
    headers = {"content-encoding": "gzip"} if packed else {}
    drop = refused(server, (200, headers, gzip.compress(body) if packed else body))
    assert "longer than 8 MB" in drop.message and len(server.requests) == 1


def test_a_packed_answer_is_read(server):
    answer = gzip.compress(json.dumps(ok("Packed.")[2]).encode())
    assert ask(server, (200, {"content-encoding": "gzip"}, answer)).text == "Packed."


class Dripping(httpx.SyncByteStream):
    def __iter__(self):
        while True:
            yield b" "


def test_the_timeout_bounds_the_whole_answer(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(http_exchange.time, "monotonic", lambda: float(next(clock)))
    answer = httpx.MockTransport(lambda _: httpx.Response(200, stream=Dripping()))
    with (
        httpx.Client(transport=answer, base_url="http://a/v1") as client,
        pytest.raises(httpx.ReadTimeout, match="within 5 s"),
    ):
        http_exchange.exchange(client, "GET", "/models", timeout_s=5)
    assert next(clock) < 10


def test_when_to_ask_again_is_a_number_or_a_date():
    now = time.time()
    date = email.utils.formatdate(now + 20, usegmt=True)
    assert retry_after_s(date, now) == pytest.approx(20, abs=1)
    assert retry_after_s("25.0", now) == 25.0 and retry_after_s("7", now) == 7.0
    assert [retry_after_s(text, now) for text in ("soon", None, "nan", "inf")] == [None] * 4
    assert retry_after_s(email.utils.formatdate(now - 20, usegmt=True), now) == 0.0


def test_fields_of_the_recipe_are_added_and_left_out(server, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(
        'base = "captions-only"\n[caption]\nbackend = "endpoint"\n[caption.request]\n'
        'max_completion_tokens = 300\nmax_tokens = ""\n'
    )
    recipe = load_recipe(str(path), overrides=['caption.request.temperature=""'])
    fields = recipe.caption.request
    assert fields == {"max_completion_tokens": 300, "max_tokens": "", "temperature": ""}
    ask(server, request=fields)
    [sent] = server.requests
    assert sent["max_completion_tokens"] == 300
    assert "max_tokens" not in sent and "temperature" not in sent and sent["seed"] == 0


@pytest.mark.parametrize("key", ["api_key", "Authorization", "messages", "stream"])
def test_fields_that_are_keys_or_glits_own_are_refused(key):
    with pytest.raises(RecipeError, match=key):
        load_recipe(
            "captions-only",
            overrides=["caption.backend=endpoint", f"caption.request.{key}=x"],
        )


def test_no_proxy_is_asked_for_this_machine(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert ask(server, ok("Whole.")).text == "Whole."


def test_a_proxy_is_named_where_it_stands_between(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:9")
    config = CaptionConfig(backend="endpoint", model="m", endpoint="http://captions.example/v1")
    with pytest.raises(UserError) as said:
        reach(config)
    assert "(through the proxy http://" in str(said.value) and "127.0.0.1:9)" in str(said.value)
    assert "secret" not in str(said.value)
    monkeypatch.setenv("no_proxy", "captions.example")
    assert _proxy(config.endpoint) == ""


@pytest.mark.parametrize(("status", "refused"), [(401, True), (403, False), (404, False)])
def test_a_key_that_may_not_list_models_is_not_refused(server, status, refused):
    server.models = status
    config = CaptionConfig(backend="endpoint", model="m", endpoint=server.url)
    with pytest.raises(UserError, match="the key is refused") if refused else nullcontext():
        reach(config)
