"""A build that is not finished, or that shipped nothing: what was dropped, by name."""

from __future__ import annotations

import json

import pytest
from building import png, run_build

from glit.errors import RunError


@pytest.fixture(scope="module")
def nothing(tmp_path_factory):
    """A build of three images, of which nothing is shipped."""
    folder = tmp_path_factory.mktemp("nothing")
    (folder / "in").mkdir()
    (folder / "in" / "bad.png").write_bytes(b"no")
    for number, name in enumerate(("a.png", "b.png")):
        (folder / "in" / name).write_bytes(png(seed=number))
    (folder / "c.jsonl").write_text('{"path": "photos/a.png", "caption": "A red ball."}\n')
    with pytest.raises(RunError, match="names 'photos/a.png', the folder has 'a.png', and none"):
        run_build(
            folder / "in", folder / "out", recipe="annotated", captions=folder / "c.jsonl",
            overrides=["propose.backend=grid", "score.backend=clip"],
        )  # fmt: skip
    return folder / "out"


def test_status_names_them(nothing, run_glit):
    said = run_glit("status", nothing).output
    assert f"{nothing}: nothing was shipped; once fixed, run glit retry" in said
    assert "a.png: caption/no_caption, c.jsonl has no row for a.png" in said
    assert "bad.png: ingest/not_an_image, no decoder" in said


def test_query_has_the_drops_and_nothing_else(nothing, run_glit):
    asked = "SELECT source_path, stage FROM drops ORDER BY ALL"
    found = json.loads(run_glit("query", nothing, asked, "--json").output)
    assert [(row["source_path"], row["stage"]) for row in found] == [
        ("a.png", "caption"), ("b.png", "caption"), ("bad.png", "ingest"),
    ]  # fmt: skip
    for sql, said in (
        ("SELECT * FROM samples", "it has the view drops alone"),
        ("SELECT * FROM '/etc/passwd'", "query:"),
        ("DROP VIEW drops", "want one SELECT"),
    ):
        done = run_glit("query", nothing, sql)
        assert done.code == 2 and said in done.errors, sql


def test_explain_says_why_or_how_far_it_is(nothing, run_glit):
    said = run_glit("explain", nothing, "b.png").output
    assert "dropped by caption: no_caption (there is no caption for this image)" in said
    done = run_glit("explain", nothing, "c.png")
    assert done.code == 2 and "c.png was not dropped so far (chunks done: ingest 1/1" in done.errors


def test_view_writes_a_page_with_pictures(nothing, tmp_path, run_glit):
    page = tmp_path / "page.html"
    done = run_glit("view", nothing, "-o", page)
    assert done.output.startswith("not finished; 3 dropped so far:")
    assert page.read_text().count("data:image/") >= 2  # of the two that can be decoded
