"""``glit export``."""

from __future__ import annotations

import re
from pathlib import Path

from glit.exporters import EXPORTERS


def test_every_exporter_is_named_in_the_help(run_glit):
    assert EXPORTERS.keys() <= {*re.findall(r"[a-z]+", run_glit("export", "--help").output)}


def test_what_reads_an_export_is_what_the_page_says():
    page = (Path(__file__).parents[2] / "docs/share.md").read_text()
    table = page.partition("| contents | read by |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE))
    assert {name: re.sub(r"`|\[|\]|\(#\w+\)", "", rows[name]) for name in EXPORTERS} == {
        name: each.read_by for name, each in EXPORTERS.items()
    }


def test_what_was_written_and_a_folder_that_exists(built, tmp_path, run_glit):
    out = tmp_path / "coco"
    done = run_glit("export", built, "--to", "coco", "-o", out)
    assert (done.code, done.output) == (0, f"24 images: {out}\nread by: pycocotools, FiftyOne\n")
    assert sorted(path.name for path in out.iterdir()) == [
        "captions.json",
        "images",
        "instances.json",
    ]
    again = run_glit("export", built, "--to", "coco", "-o", out)
    assert again.code == 2
    assert again.errors == f"glit: -o {out}: exists already; choose another folder or remove it\n"


def test_only_what_a_condition_selects_is_written(built, tmp_path, run_glit):
    words = ("export", built, "--to", "webdataset", "-o", tmp_path / "out", "--where")
    none = run_glit(*words, "width < 0")
    assert (none.code, none.errors) == (
        2, "glit: --where width < 0: none of 24 samples meets this condition\n",
    )  # fmt: skip
    wrong = run_glit(*words, "widht > 3")
    assert wrong.code == 2 and "no column 'widht', did you mean 'width'? columns: " in wrong.errors
    assert wrong.errors.count("\n") == 1 and [*tmp_path.iterdir()] == []
    done = run_glit(*words, "source_path IN ('000003.png', '000007.png')")
    assert (done.code, done.output) == (
        0, f"2 images: {tmp_path / 'out'}\nread by: webdataset\n",
    )  # fmt: skip
