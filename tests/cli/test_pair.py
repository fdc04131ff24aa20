"""``glit pair``."""

from __future__ import annotations

from glit import open_dataset


def test_another_rule_over_a_finished_dataset(built, tmp_path, run_glit):
    out = tmp_path / "lism"
    done = run_glit("pair", built, "-o", out, "--set", "pair.rule=lism")
    assert (done.code, done.output) == (0, f"24 images: {out}\n")
    assert open_dataset(out).manifest["recipe"]["pair"]["rule"] == "lism"
    assert run_glit("verify", out).code == 0
    again = run_glit("pair", built, "-o", out)
    assert again.code == 2 and "exists already" in again.errors


def test_a_rule_that_is_not_there(built, tmp_path, run_glit):
    done = run_glit("pair", built, "-o", tmp_path / "x", "--set", "pair.rule=centered")
    assert done.code == 2
    assert "did you mean 'centred'" in done.errors
