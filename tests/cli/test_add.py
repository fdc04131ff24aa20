"""``glit add``, and ``glit.add``."""

from __future__ import annotations

import json
import shutil

import pytest

import glit


@pytest.fixture
def grown(scenes, tmp_path, run_glit):
    """A dataset of four scenes, and two more in the folder."""
    images = tmp_path / "in"
    images.mkdir()

    def put(*numbers: int) -> None:
        for number in numbers:
            shutil.copy(scenes / "images" / f"{number:06d}.png", images)

    put(2, 3, 4, 5)
    settings = ["--set", "propose.backend=grid", "--captions", scenes / "captions.jsonl"]
    words = ["-r", "mini", *settings, "--executor", "local", "--quiet"]
    assert run_glit("build", images, "-o", tmp_path / "out", *words).code == 0
    put(0, 7)
    return tmp_path


@pytest.mark.slow
def test_what_is_added_is_told(grown, run_glit):
    out = grown / "out"
    done = run_glit("add", out, "--executor", "local", "--quiet", "--limit", 1)
    assert (done.code, done.output) == (
        0,
        "added: 1 images = 1 shipped + 0 dropped + 0 duplicates\n"
        f"{out}: 5 images = 5 shipped + 0 dropped + 0 duplicates\n",
    )
    done = run_glit("add", out, "--executor", "local", "--quiet", "--json")
    told = json.loads(done.output)
    assert told["counts"]["shipped"] == 6
    assert told["added"] == {"ingested": 1, "shipped": 1, "dropped": 0, "duplicates": 0}
    done = run_glit("add", out, "--executor", "local", "--quiet")
    assert (done.code, done.output) == (0, f"{out}: no new images in {grown / 'in'}\n")
    done = run_glit("add", out, "--executor", "local", "--quiet", "--json")
    assert json.loads(done.output)["added"] is None
    assert "complete\n" in run_glit("status", out).output
    assert run_glit("verify", out, "--quiet").code == 0


def test_an_addition_that_was_stopped_is_told(grown, run_glit, monkeypatch):
    from glit.pipeline import run

    def stopped(*_, **__):
        raise KeyboardInterrupt

    out = grown / "out"
    with monkeypatch.context() as patch:
        patch.setattr(run, "publish", stopped)
        run_glit("add", out, "--executor", "local", "--quiet")
    done = run_glit("status", out)
    assert done.output.startswith(
        f"{out}: complete; an addition is not finished, run glit add again"
    )
    assert json.loads(run_glit("status", out, "--json").output)["adding"]
    assert run_glit("add", out, "--executor", "local", "--quiet").code == 0
    assert not json.loads(run_glit("status", out, "--json").output)["adding"]


def test_from_python(grown):
    dataset = glit.add(grown / "out", executor="local", limit=1, quiet=True)
    assert [row.source_path for row in dataset][-1] == "000000.png"
    assert len(glit.add(str(grown / "out"), executor="local", quiet=True)) == 6
    with pytest.raises(glit.GlitError, match="no dataset here"):
        glit.add(grown / "nothing", executor="local", quiet=True)
