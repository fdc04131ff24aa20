"""The page's data and its file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.images.thumbnails import MAX_BYTES
from glit.view.page_file import json_for_html, report_html
from glit.view.report import report_data, write_page


@pytest.fixture(scope="module")
def data(hostile):
    return report_data(Dataset(hostile), most=200, seed=0, where="")


def test_numbers_are_those_of_the_dataset(data, hostile):
    def one(sql):
        return query(str(hostile), sql).fetchall()[0][0]

    assert data["totals"] == {
        "images": 7,
        "sentences": one("SELECT count(*) FROM sentences"),
        "regions": one("SELECT count(*) FROM regions"),
        "pairs": one("SELECT count(*) FROM pairs WHERE NOT global_wins"),
        "without": one("SELECT count(*) FROM pairs WHERE global_wins"),
    }
    charts = {chart["name"]: chart for chart in data["charts"]}
    assert set(charts) == {
        "words",
        "sentences",
        "regions",
        "similarity",
        "probability",
        "support",
        "area",
    }
    assert charts["words"]["total"] == 7
    assert charts["similarity"]["total"] == data["totals"]["pairs"] == charts["area"]["total"]
    assert charts["probability"]["total"] == one("SELECT count(probability) FROM pairs")
    assert charts["area"]["median"] == pytest.approx(
        one(
            "SELECT quantile_cont(round((x1 - x0) * (y1 - y0) / (128 * 128.0), 2), 0.5) "
            "FROM pairs WHERE NOT global_wins"
        )
    )
    assert sum(each["regions"] for each in data["sources"]) == data["totals"]["regions"]
    assert sum(each["pairs"] for each in data["sources"]) == data["totals"]["pairs"]


def test_what_was_left_out_is_named(data):
    (drop,) = data["left_out"]["drops"]
    assert (drop["reason"], drop["number"]) == ("empty_file", 1)
    assert drop["examples"][0]["path"].startswith("<img src=x")
    (copy,) = data["left_out"]["duplicates"]
    assert copy["examples"] == [{"path": "zz-copy.png", "message": "000001.png"}]


def test_the_story(data):
    steps = {step["title"]: step for step in data["story"]["steps"]}
    assert steps["Captions"]["how"] == "provided"
    assert steps["Regions"]["model"] == "mini-proposer"
    assert steps["Pairs"]["how"] == "rule centred"
    assert data["story"]["recipe"] == "glit-mini"


def test_no_character_that_html_reads_is_left_in_the_data(data):
    html = report_html(data)
    before, _, rest = html.partition('<script type="application/json" id="data">')
    text = rest.partition("</script>")[0]
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text)["samples"] == data["samples"]
    assert "hacked" not in before and "hacked" not in rest.partition("</script>")[2]


def test_odd_texts_survive():
    text = "a </script><!-- \u2028 \u2029 & \ud800 {{SCRIPT}} é 🐕"
    back = json.loads(json_for_html({"text": text}))["text"]
    assert back == text.replace("\ud800", "?")


def test_nothing_is_asked_of_a_network(data):
    html = report_html(data)
    assert not re.findall(r"(?:src|href)=[\"']?https?:", html)
    assert "default-src 'none'" in html and "unsafe" not in html.partition("<style>")[0]


def test_two_hundred_samples_stay_under_15_mb():
    largest_image = MAX_BYTES * 4 / 3
    assert 200 * largest_image < 12.7e6  # texts, boxes and matrices of 200 have 2.3 MB


def test_the_command(hostile, tmp_path, run_glit):
    page = tmp_path / "new" / "report.html"
    done = run_glit("view", hostile, "-o", page, "--sample", 3, "--seed", 1)
    assert done.code == 0, done.errors
    assert done.output.startswith("3 of 7 samples") and page.as_uri() in done.output
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("output", "said"), [(".", "it is a folder"), ("s3://bucket/report.html", "an address")]
)
def test_a_page_that_cannot_be_written(hostile, tmp_path, run_glit, monkeypatch, output, said):
    monkeypatch.chdir(tmp_path)
    done = run_glit("view", hostile, "-o", output)
    assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", Path("/proc/self")):  # even what is not there cannot go
        with pytest.raises(InputError, match=r"-o .*page.html: cannot write there \("):
            write_page(folder / "page.html", "<html>")
