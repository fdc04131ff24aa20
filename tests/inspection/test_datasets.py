"""Faults of datasets of glit, the command line, and the page."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Page, violations

from glit import api
from glit.dataset.reader import Dataset
from glit.runtime.progress import null_progress
from glit.sample import write_sample

HOSTILE = "<img src=x onerror=window.hacked=1>.png"


def change(dataset: Path, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a dataset's first file."""
    (name, *_) = Dataset(dataset).files
    table = pq.read_table(dataset / name)
    rows = table.to_pylist()
    edit(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), dataset / name, row_group_size=100)


def codes(dataset: Path, **options: Any) -> dict[str, int]:
    """Numbers at fault by code."""
    return {f.code: f.at_fault for f in api.audit(dataset, **options).findings}


def test_scenes_and_photographs_have_no_fault(built, built_by_mini, scenes, tmp_path):
    write_sample(tmp_path / "sample", null_progress())
    sound = (built, built_by_mini, tmp_path / "sample" / "dataset", tmp_path / "sample" / "images",
             scenes / "captions.jsonl")  # fmt: skip
    assert [codes(each) for each in sound] == [{}] * len(sound)
    assert api.audit(sound[2], model="mini-matcher").estimates == ()  # it knows no photographs


def spans(rows):
    rows[0]["sentences"][0]["char_start"] += 1
    rows[1]["sentences"][0]["text"] = "a zeppelin"
    rows[2]["sentences"][0]["char_end"] = 100_000


def boxes(rows):
    rows[0]["regions"][0]["x1"] = 4000.0
    rows[1]["regions"][0]["x1"] = rows[1]["regions"][0]["x0"]
    rows[2]["regions"][0]["y0"] = float("nan")


def names_and_captions(rows):
    rows[0]["source_path"] = "../x.png"
    rows[1] |= {"caption": rows[2]["caption"], "sentences": rows[2]["sentences"]}
    rows[3] |= {"caption": " ", "sentences": []}


def pictures(rows):
    data = rows[0]["image"]["bytes"]
    rows[0]["image"]["bytes"] = data[: len(data) // 2]
    rows[1]["width"] *= 2


FAULTS = {
    spans: {"span-words": 2, "text-outside": 1},
    boxes: {"box-empty": 2, "box-outside": 1},
    names_and_captions: {"name-unsafe": 1, "caption-repeated": 2, "caption-empty": 1},
    pictures: {"picture-damaged": 1, "stated-shape": 1},
}


@pytest.mark.parametrize("edit", FAULTS, ids=lambda edit: edit.__name__)
def test_rows_with_faults(built_copy, edit):
    change(built_copy, edit)
    assert codes(built_copy) == FAULTS[edit]


def test_token_spans(built_by_mini, tmp_path):
    dataset = Path(shutil.copytree(built_by_mini, tmp_path / "dataset"))
    change(dataset, lambda rows: rows[0]["sentences"][1].update(token_start=2, token_end=3))
    assert codes(dataset) == {"token-span": 1}


def test_files_that_are_damaged_are_a_fault(built_copy):
    name = Dataset(built_copy).files[0]
    (built_copy / name).write_bytes(b"PAR1 and no more")
    assert codes(built_copy) == {"unreadable": 1}
    (built_copy / name).unlink()
    assert codes(built_copy) == {"unreadable": 1}


def test_rows_that_cannot_be(built_copy):
    """Nulls, and columns of other types."""

    def nulls(rows):
        rows[0]["caption"] = None
        rows[1]["regions"][0]["x0"] = None
        rows[2]["sentences"][0]["char_start"] = None
        rows[3] |= {"source_path": None, "image": None}

    change(built_copy, nulls)
    (found,) = api.audit(built_copy).findings
    assert (found.code, found.at_fault, found.looked_at) == ("unreadable", 4, 24)
    name = min((built_copy / "data").iterdir())
    table = pq.read_table(name)
    column = table.schema.get_field_index("caption")
    numbers = pa.array(range(len(table)))
    pq.write_table(table.set_column(column, "caption", numbers), name, row_group_size=100)
    assert codes(built_copy)["unreadable"] >= len(table)


def test_the_repair_of_repeated_captions_repairs(built_copy, run_glit, tmp_path, monkeypatch):
    def repeat(rows):
        rows[1] |= {key: rows[2][key] for key in ("caption", "sentences")}

    change(built_copy, repeat)
    (found,) = api.audit(built_copy).findings
    assert (found.code, found.at_fault) == ("caption-repeated", 2)
    monkeypatch.chdir(tmp_path)
    assert run_glit(*shlex.split(found.repair)[1:]).code == 0
    report = api.audit(tmp_path / "repaired")
    assert report.findings == () and report.images == 23


def test_an_estimate_of_wrong_pairs(built_copy):
    def probable(rows):
        for row in rows:
            for pair in row["pairs"]:
                pair |= {"probability": 0.9, "global_wins": False}

    assert api.audit(built_copy).estimates == ()
    change(built_copy, probable)
    (found,) = api.audit(built_copy).estimates
    assert found.of == "pairs" and found.share == pytest.approx(0.1)
    half = 1.96 * (0.09 / found.items) ** 0.5
    assert found.at_most == pytest.approx(0.1 + half)
    assert found.at_least == pytest.approx(max(0, 0.1 - half))


def test_on_the_command_line(built_copy, run_glit, tmp_path):
    done = run_glit("audit", str(built_copy))
    assert done.code == 0 and "no fault: unreadable, span-words" in done.output
    change(built_copy, boxes)
    done = run_glit("audit", str(built_copy), "--json", "-o", str(tmp_path / "p.html"))
    found = json.loads(done.output)
    assert done.code == 1 and found["has_errors"]
    first = found["findings"][0]
    assert (first["code"], first["repair"]) == ("box-empty", f"glit verify {built_copy}")
    assert {*first["examples"][0]} == {"name", "detail"}
    done = run_glit("audit", str(built_copy))
    assert done.code == 1 and "box-outside" in done.output and "no fault:" in done.output


def test_warnings_alone_are_no_failure(built_copy, run_glit):
    change(built_copy, lambda rows: rows[0].update(source_path="con.png"))
    done = run_glit("audit", str(built_copy))
    assert done.code == 0 and "name-unportable" in done.output


def test_what_is_not_there(run_glit, tmp_path):
    for words in (["nowhere"], [str(tmp_path), "--images", "nowhere"]):
        done = run_glit("audit", *words)
        assert done.code == 2 and "nowhere: no such file or folder" in done.errors
    (tmp_path / "work").mkdir()
    done = run_glit("audit", str(tmp_path))
    assert done.code == 2 and "no images found" in done.errors  # any folder may be "work"
    (tmp_path / "work" / "state.json").write_text("{}")
    done = run_glit("audit", str(tmp_path))
    assert done.code == 2 and "the build is not finished" in done.errors


def test_the_page(browser, built_copy, tmp_path):
    def hostile(rows):
        rows[0] |= {"source_path": HOSTILE, "caption": f"I'm sorry, but I can't. {HOSTILE}"}
        rows[0]["sentences"] = []

    change(built_copy, hostile)
    api.audit(built_copy, page=tmp_path / "page.html")
    for width in (1280, 390):
        page = Page(
            browser, (tmp_path / "page.html").as_uri(), viewport={"width": width, "height": 800}
        )
        page.wait_for_selector("#caption-refusal")
        assert HOSTILE in page.inner_text("#caption-refusal")
        assert page.locator("#caption-refusal img").count() == 1
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.faults == [] and page.from_network == [] and violations(page) == []
