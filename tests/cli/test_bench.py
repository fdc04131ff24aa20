"""``glit bench lism-flism``: what it prints and writes; the measurement is in tests/bench."""

from __future__ import annotations

import json

import pytest

import glit.bench.lism_flism.run as module
from glit.bench.lism_flism.report import page
from glit.runtime.tables import markdown


@pytest.fixture
def asked(random_tiny, monkeypatch):
    """What the measurement was asked for; it is not made."""
    requests = []

    def measured(request, progress):
        progress("a step")
        requests.append(request)
        return random_tiny

    monkeypatch.setattr(module, "run", measured)
    return requests


def test_json_alone_is_printed_and_what_was_taken_is_said(random_tiny, asked, tmp_path, run_glit):
    out = tmp_path / "out"
    done = run_glit("bench", "lism-flism", "-o", out, "--device", "cpu", "--json")
    assert done.code == 0
    assert json.loads(done.output) == json.loads(json.dumps(random_tiny))
    assert "--weights mini" in done.errors and "a step" in done.errors
    assert (asked[0].weights, asked[0].repeats, asked[0].num_images) == ("mini", 3, None)
    assert (out / "lism-flism.md").read_text() == markdown(page(random_tiny))


def test_the_files_are_named(asked, tmp_path, run_glit):
    out = tmp_path / "out"
    done = run_glit("bench", "lism-flism", "-o", out, "--weights", "random", "--repeats", "2")
    written = [line for line in done.output.splitlines() if line.startswith("wrote ")]
    assert written == [
        f"wrote {out}/lism-flism.{suffix}" for suffix in ("json", "md", "png", "svg")
    ]
    assert all((out / f"lism-flism.{suffix}").is_file() for suffix in ("json", "md", "png", "svg"))
    assert (asked[0].weights, asked[0].repeats) == ("random", 2)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(asked, tmp_path, run_glit):
    (tmp_path / "file").write_text("")
    done = run_glit("bench", "lism-flism", "-o", tmp_path / "file")
    assert done.code == 2 and "cannot write there" in done.errors
    assert asked == []


def test_objectives_of_other_names_are_refused(run_glit, tmp_path, make_dataset) -> None:
    datasets = [str(make_dataset(2, name=name)) for name in ("train", "test")]
    words = ("bench", "objectives", "-o", tmp_path / "out", "--train", datasets[0], "--test")
    done = run_glit(*words, datasets[1], "--objective", "clpi")
    assert done.code == 2 and "--objective 'clpi': wanted one of clip, local" in done.errors
