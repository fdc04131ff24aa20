"""One image from file to pair."""

from __future__ import annotations

import json

import pytest

import glit
from glit.dataset.query import query
from glit.errors import InputError
from glit.view.explain import as_text, explain


def test_a_sample_by_path_and_by_id(opened):
    row = opened[2]
    found = explain(opened, row.source_path)
    assert found == explain(opened, row.sample_id) == explain(opened, row.sample_id[:10])
    assert (found["outcome"], found["row"]) == ("shipped", 2)
    assert [s["text"] for s in found["sentences"]] == [s.text for s in row.sentences]
    chosen = {pair.sentence: pair.region for pair in row.pairs if not pair.global_wins}
    assert {
        n: s["region"] for n, s in enumerate(found["sentences"]) if s["region"] is not None
    } == chosen
    for number, sentence in enumerate(found["sentences"]):
        best = max(row.similarity[number])
        others = [each["similarity"] for each in sentence["next_best"]]
        assert sentence["rank_by_cosine"] == 1 or others[0] == pytest.approx(best)
    assert set(found["fingerprints"]) >= {"caption", "score", "pair"}
    text = as_text(found)
    assert row.sample_id in text and "rule centred" in text
    assert "less probable than pair.min_probability, 0.5" in text
    assert "highest cosine of all regions" in text


def test_what_dropped_it(opened):
    name = query(opened.path, "SELECT source_path FROM drops").fetchall()[0][0]
    found = explain(opened, name)
    assert (found["outcome"], found["stage"], found["reason"]) == (
        "dropped",
        "ingest",
        "empty_file",
    )
    assert "dropped by ingest: empty_file (the file has no bytes)" in as_text(found)


def test_a_duplicate_and_what_it_repeats(opened):
    copy = explain(opened, "zz-copy.png")
    assert (copy["outcome"], copy["kept_path"], copy["kind"]) == (
        "duplicate",
        "000001.png",
        "exact",
    )
    kept = explain(opened, "000001.png")
    assert kept["duplicates"] == [{"path": "zz-copy.png", "kind": "exact"}]
    assert "duplicate zz-copy.png was left out" in as_text(kept)


@pytest.mark.parametrize("name", ["nothing.png", "' OR true --", "abcdef0123", ""])
def test_a_name_that_nothing_has(opened, name):
    with pytest.raises(InputError, match="no image of"):
        explain(opened, name)


def test_the_whole_image_wins_in_lism(built, tmp_path):
    dataset = glit.pair(built, tmp_path / "new", settings=["pair.rule=lism"])
    text = "\n".join(as_text(explain(dataset, row.source_path)) for row in dataset)
    assert "the whole image matches it at least as well" in text


def test_the_command(hostile, tmp_path, run_glit):
    page = tmp_path / "one.html"
    done = run_glit("explain", hostile, "000000.png", "--json", "-o", page)
    assert done.code == 0 and json.loads(done.output)["path"] == "000000.png"
    assert "<script>window.hacked" not in page.read_text()
    done = run_glit("explain", hostile, "nothing.png")
    assert done.code == 2 and done.errors.count("\n") == 1


def test_support_is_told_and_what_it_takes_away(hostile, tmp_path):
    strict = glit.pair(hostile, tmp_path / "strict", settings=["pair.min_support=0.999"])
    row = next(iter(strict.rows(images=False)))
    found = explain(strict, row.source_path)
    text = as_text(found)
    assert ", support " in text and "less support than pair.min_support, 0.999" in text
    supports = {pair.sentence: pair.support for pair in row.pairs}
    assert [s["support"] for s in found["sentences"]] == [supports[n] for n in range(len(supports))]
