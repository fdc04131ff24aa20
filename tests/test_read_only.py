"""Every command that writes, in folders that its user may only read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from glit.recipes.resources import builtin_recipes

RIGHTS = "-dac_override,-dac_read_search"
ALL = """
import contextlib, io, json, sys
import torch, transformers
from glit.cli.main import main

told = {}
for words in json.load(sys.stdin):
    sys.argv, said, code = ["glit", *words], io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    told[" ".join(words[:1])] = [code, said.getvalue()]
print(json.dumps(told))
"""


@pytest.mark.slow
def test_a_folder_that_may_only_be_read_is_one_line(scenes, built, tiny_clip, tmp_path_factory):
    """Root is not stopped by a folder's mode, so it runs this without that right."""
    root = tmp_path_factory.mktemp("read-only")
    for parent in root.relative_to(tempfile.gettempdir()).parents[:-1]:
        (tempfile.gettempdir() / parent).chmod(0o755)
    home, locked = root / "home", root / "locked"
    home.mkdir()
    shutil.copytree(built, locked / "out")
    (locked / "own.toml").write_bytes(builtin_recipes()["mini"].read_bytes())
    captions = scenes / "captions.jsonl"
    new = locked / "new"
    settings = ["--set", f"train.model={tiny_clip}", "--set", "train.trackers=[]"]
    lines = [
        ["build", scenes / "images", "-o", new, "-r", "mini", "--captions", captions,
         "--executor", "local"],
        ["retry", locked / "out", "--executor", "local"],
        ["add", locked / "out", "--executor", "local"],
        ["clean", locked / "out"],
        ["pair", built, "-o", new, "--set", "pair.rule=sinkhorn"],
        ["select", built, "-o", new],
        ["export", built, "--to", "coco", "-o", new],
        ["view", built, "-o", locked / "page.html"],
        ["train", built, "-o", new, "-r", "clip", *settings],
        ["eval", "retrieval", tiny_clip, built, "-o", new],
        ["scenes", "-o", new, "--num", "1"],
        ["lock", locked / "own.toml"],
        ["interpolate", tiny_clip, tiny_clip, "-o", new],
    ]  # fmt: skip
    folders = [locked, *(path for path in locked.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    rights = ["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}"]
    done = subprocess.run(
        [*(rights if os.geteuid() == 0 else []), sys.executable, "-c", ALL],
        input=json.dumps([list(map(str, line)) for line in lines]), capture_output=True, text=True,
        env={**os.environ, "HOME": str(home)}, cwd=home, check=False,
    )  # fmt: skip
    for folder in folders:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert list(told) == [line[0] for line in lines]
    for command, (code, said) in told.items():
        [error] = [line for line in said.splitlines() if line.startswith("glit: ")] or [said]
        assert code in (1, 2) and "Traceback" not in said, (command, code, said)
        assert "annot" in error and str(locked) in error, (command, error)
