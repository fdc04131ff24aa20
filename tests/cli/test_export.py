"""``glit export``."""

from __future__ import annotations

import re

from glit.exporters import EXPORTERS


def test_every_exporter_is_named_in_the_help(run_glit):
    assert EXPORTERS.keys() <= {*re.findall(r"[a-z]+", run_glit("export", "--help").output)}


def test_what_was_written_and_a_folder_that_exists(built, tmp_path, run_glit):
    out = tmp_path / "coco"
    done = run_glit("export", built, "--to", "coco", "-o", out)
    assert (done.code, done.output) == (0, f"24 images: {out}\n")
    assert sorted(path.name for path in out.iterdir()) == [
        "captions.json",
        "images",
        "instances.json",
    ]
    again = run_glit("export", built, "--to", "coco", "-o", out)
    assert again.code == 2
    assert again.errors == f"glit: -o {out}: exists already; choose another folder or remove it\n"
