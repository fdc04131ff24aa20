"""What a caption server wrote before its build ended is not asked for again."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import data_bytes, noise, quiet, run_build
from chat_server import Server, ok

from glit.errors import RunError, UserError
from glit.pipeline import stage_task
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.runtime.limits import Limits

REFUSAL = "I'm sorry, but I cannot help with that."
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


def build(photographs, output, server, *more, **named):
    settings = ["backend=endpoint", "model=m", f"endpoint={server.url}", "retries=0"]
    settings = [f"caption.{each}" for each in settings]
    settings += [each if each.startswith("ingest.") else f"caption.{each}" for each in more]
    return run_build(photographs, output, overrides=settings, **named)


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


def test_short_captions_that_were_paid_for_are_kept_too(photographs, tmp_path):
    captions = tmp_path / "captions.jsonl"
    rows = ({"path": path.name, "caption": CAPTION} for path in sorted(photographs.iterdir()))
    captions.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def condense(output, server):
        settings = ["enabled=true", "model=m", f"endpoint={server.url}", "retries=0"]
        settings += ["batch_size=1", "max_words=30"]
        return run_build(
            photographs, output, recipe="captions-only", captions=captions,
            overrides=[f"condense.{each}" for each in settings],
        )  # fmt: skip

    with OutOfMoney(4) as server, pytest.raises(UserError, match="HTTP 402 .no credit"):
        condense(tmp_path / "out", server)
    with OutOfMoney(99) as server:
        condense(tmp_path / "out", server)
        assert len(server.requests) == 3


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


NO_CREDIT = (402, {}, {"error": {"message": "no credit"}})


def server_that_refuses(server, number):
    """Refuses all images but ``number``, and from then on what ``server.later`` answers."""
    server.later = []

    def answer(body):
        if server.later:
            return server.later.pop(0)
        return ok(CAPTION if len(server.requests) <= number else REFUSAL)

    server.answer = answer


def test_a_stopped_retry_pays_for_nothing_twice(photographs, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    with OutOfMoney(99) as server:
        build(photographs, whole, server)
    with Server() as server:
        server_that_refuses(server, 1)
        build(photographs, out, server, "batch_size=1")
        server.later = [*[ok(CAPTION)] * 4, *[NO_CREDIT] * 2]
        with pytest.raises(UserError, match="no credit"):
            retry(str(out), LocalExecutor(), quiet())
        server.requests.clear()
        server.later = [ok(CAPTION)] * 9
        assert retry(str(out), LocalExecutor(), quiet()).counts.shipped == 7
        assert len(server.requests) == 2
    columns = ["sample_id", "caption", "pairs"]
    rows = (pq.read_table(each / "data", columns=columns).to_pylist() for each in (out, whole))
    assert next(rows) == next(rows)


def test_an_image_that_repeats_none_any_more_leaves_its_neighbours_paid(photographs, tmp_path):
    """Its table has another name then; the rows of the other samples are those of before."""
    names = sorted(path.name for path in photographs.iterdir())[:4]
    for path in photographs.iterdir():
        if path.name not in names:
            path.unlink()
    first, _, third, _ = (photographs / name for name in names)
    other = first.read_bytes()
    first.write_bytes(third.read_bytes())
    with OutOfMoney(99) as server:
        words = ("batch_size=1", "ingest.chunk_size=2")
        assert build(photographs, tmp_path / "out", server, *words).counts.duplicates == 1
        assert len(server.requests) == 3
        first.write_bytes(other)
        found = build(photographs, tmp_path / "out", server, *words, replace=True).counts
        assert (found.shipped, found.duplicates) == (4, 0)
        assert len(server.requests) == 3 + 2 + 1  # a changed chunk, and the image itself
        build(photographs, tmp_path / "whole", server, *words)
    assert data_bytes(tmp_path / "out") == data_bytes(tmp_path / "whole")


def test_the_tokens_of_a_stopped_run_count_once(photographs, tmp_path):
    paid = {**ok(CAPTION)[2], "usage": {"total_tokens": 100}}
    out, words = tmp_path / "out", ("batch_size=1", "ingest.chunk_size=4")
    with Server() as server:
        server.answer = lambda body: (200, {}, paid) if len(server.requests) <= 3 else NO_CREDIT
        with pytest.raises(UserError, match="no credit"):
            build(photographs, out, server, *words)
        server.answer = lambda body: (200, {}, paid)
        limits = Limits(tokens=650)  # 300 of the first run, 100 for the rest of its chunk, and 300
        assert build(photographs, out, server, *words, limits=limits).counts.shipped == 7


def test_no_password_of_a_retry_is_written_down(photographs, tmp_path):
    out = tmp_path / "out"
    with Server() as server:
        server_that_refuses(server, 2)
        build(photographs, out, server, "batch_size=1")
        address = server.url.replace("http://", "http://ann:hunter2secret@")
        server.later = [*[ok(CAPTION)] * 2, *[NO_CREDIT] * 2]
        again = {"settings": [f"caption.endpoint={address}"]}
        with pytest.raises(UserError, match="no credit"):
            retry(str(out), LocalExecutor(), quiet(), **again)
        server.later = [ok(CAPTION)] * 9
        assert retry(str(out), LocalExecutor(), quiet(), **again).counts.shipped == 7
    assert not [f for f in out.rglob("*") if f.is_file() and b"hunter2" in f.read_bytes()]
    settings = json.loads((out / "manifest.json").read_text())["retries"][0]["settings"]
    assert settings["caption"]["endpoint"] == server.url


def test_a_retry_changes_a_value_inside_a_key_alone(photographs, tmp_path):
    with Server() as server:
        server_that_refuses(server, 2)
        build(photographs, tmp_path / "out", server, "batch_size=1", "request={top_p=0.5,top_k=1}")
        server.later = [ok(CAPTION)] * 9
        retry(str(tmp_path / "out"), LocalExecutor(), quiet(), settings=["caption.request.top_k=2"])
        assert (server.requests[-1]["top_p"], server.requests[-1]["top_k"]) == (0.5, 2)
