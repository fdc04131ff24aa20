"""Nothing from data is obeyed by a terminal."""

from __future__ import annotations

import io
import json
import re
import shutil

from building import run_build
from rich.table import Table

from glit.runtime.progress import StageProgress
from glit.runtime.terminal import Console, one_line, visible

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"


def test_what_is_written_is_kept_and_what_is_obeyed_is_told():
    kept = "Żółw 😀‍👩 日本\n\tعربي "
    assert visible(kept) == kept
    assert visible(ESCAPE) == r"\x1b]0;owned\x07\x1b[2J\u202e"


def test_a_console_prints_texts_and_cells_and_no_markup():
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True)
    table = Table("[red]head")
    table.add_row(ESCAPE)
    console.print(f"[/]{ESCAPE}")
    console.print(table)
    StageProgress(Console(file=out, width=200)).note(f"[/]{ESCAPE}")
    said = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())
    assert said.count(visible(ESCAPE)) == 3 and "[red]head" in said and said.count("[/]") == 2
    assert not set("\x1b\x07\u202e") & set(said)


def test_a_colon_in_a_path_is_no_emoji():
    out = io.StringIO()
    Console(file=out, width=99).print("w:x:y: 6 images")
    assert out.getvalue() == "w:x:y: 6 images\n"
    assert one_line("a\nb\u202e\tc") == r"a\x0ab\u202e\x09c"


def test_explain_status_and_errors_escape_what_a_stranger_wrote(scenes, tmp_path, run_glit):
    images, out = tmp_path / "in", tmp_path / "out"
    images.mkdir()
    name = "a\x1b[2J.png"
    shutil.copy(scenes / "images" / "000000.png", images / name)
    (images / "\x1b[3J.png").write_bytes(b"none")
    captions = tmp_path / "captions.jsonl"
    captions.write_text(json.dumps({"path": name, "caption": f"A red circle {ESCAPE} stands."}))
    run_build(images, out, captions=captions)
    for words in (
        ["explain", out, name], ["explain", out, "\x1b[3J.png"], ["status", out],
        ["explain", out, "no\x1b[2J"], ["query", out, "SELECT caption FROM samples"],
    ):  # fmt: skip
        done = run_glit(*words)
        assert not set("\x1b\x07") & set(done.output + done.errors), words
        assert done.output or done.errors
