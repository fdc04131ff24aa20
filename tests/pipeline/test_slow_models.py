"""Models that take many seconds an image on a CPU: what a kill loses, and what is said before."""

from __future__ import annotations

import io
import re

import pytest
from building import data_bytes, run_build
from rich.console import Console

from glit.models.backends.proposers.sam import SamDetector, SamOptions, cpu_seconds
from glit.models.backends.protocols import ProposerConfig
from glit.models.weights import Resolved
from glit.pipeline import stage_task
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.status import status
from glit.recipes.config import identity
from glit.runtime import progress as progress_module
from glit.runtime.progress import StageProgress
from glit.scenes import write_scenes

RECIPE = {"recipe": "lism-mini"}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    write_scenes(folder, num=6, seed=2_000_000)
    return folder


@pytest.fixture
def stops_at(monkeypatch):
    """``stops_at(n)`` raises KeyboardInterrupt at the n-th image; the images of every call."""
    seen: list[int] = []
    plain = SamDetector.detect

    def stop_at(number):
        seen.clear()

        def detect(self, images):
            seen.append(len(images))
            if len(seen) == number:
                raise KeyboardInterrupt
            return plain(self, images)

        monkeypatch.setattr(SamDetector, "detect", detect)
        return seen

    return stop_at


@pytest.mark.slow
def test_a_kill_within_a_chunk_loses_what_was_not_kept(few, tmp_path, monkeypatch, stops_at):
    build = {**RECIPE, "captions": few / "captions.jsonl"}
    calls = stops_at(0)
    run_build(few / "images", tmp_path / "whole", **build)
    assert calls == [1] * 6  # one by one, so that each shows
    monkeypatch.setattr(stage_task, "_KEEP_EVERY_S", 0.0)
    stops_at(5)
    with pytest.raises(KeyboardInterrupt):
        run_build(few / "images", tmp_path / "killed", **build)
    propose = status(str(tmp_path / "killed"))["stages"][3]
    assert propose["chunks_done"] == 0 and 3 <= propose["rows"] <= 4
    calls = stops_at(0)
    run_build(few / "images", tmp_path / "killed", **build)
    assert len(calls) <= 3  # of the four that were done, three were kept
    assert data_bytes(tmp_path / "killed") == data_bytes(tmp_path / "whole")
    assert not list((tmp_path / "killed" / "work").rglob("*so-far*"))


@pytest.mark.slow
def test_a_damaged_so_far_is_passed_over(few, tmp_path, monkeypatch, stops_at):
    build = {**RECIPE, "captions": few / "captions.jsonl"}
    monkeypatch.setattr(stage_task, "_KEEP_EVERY_S", 0.0)
    stops_at(4)
    with pytest.raises(KeyboardInterrupt):
        run_build(few / "images", tmp_path / "out", **build)
    (kept,) = (tmp_path / "out" / "work").rglob("*so-far*")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert status(str(tmp_path / "out"))["stages"][3]["rows"] == 0
    calls = stops_at(0)
    assert run_build(few / "images", tmp_path / "out", **build).counts.shipped == 6
    assert len(calls) == 6


@pytest.mark.parametrize("points", [0, 8])
def test_the_time_is_told_before_the_first_image(few, tmp_path, monkeypatch, points):
    """Without advice to set what is set; and after the first image what it took."""
    monkeypatch.setattr(progress_module, "_LINE_EVERY_S", 0.0)
    monkeypatch.setattr(stage_task, "_BEAT_EVERY_S", 0.0)
    said = io.StringIO()
    progress = StageProgress(Console(file=said, width=400))
    monkeypatch.setattr(Resolved, "is_mini", property(lambda self: False))
    build = {**RECIPE, "captions": few / "captions.jsonl", "progress": progress}
    overrides = [f"propose.points_per_side={points}"] if points else []
    run_build(few / "images", tmp_path / "out", overrides=overrides, limit=3, **build)
    told = said.getvalue()
    assert "mini-segmenter on a CPU: about" in told and "if nothing else runs" in told
    assert ("propose.points_per_side=16" in told) == (not points)
    assert re.search(r"propose +1/3 .* left", told)


def test_the_estimate_is_near_what_was_measured(tmp_path):
    for megabytes, options, least, most in (
        (41, None, 20, 26),
        (2564, None, 55, 70),
        (41, SamOptions(points_per_side=16), 5, 8),
    ):
        file = tmp_path / "model.pt"
        with file.open("wb") as sparse:
            sparse.truncate(megabytes * 10**6)
        model = type("Model", (), {"path": file})()
        config = type("Config", (), {"options": options})()
        assert least < cpu_seconds(config, model) < most  # pyright: ignore


def test_points_are_the_models_own_unless_asked(few):
    plain, asked = (
        load_recipe("lism-mini", overrides=overrides).propose
        for overrides in ((), ["propose.points_per_side=4"])
    )
    default = load_recipe("lism-mini", overrides=["propose.points_per_side=0"]).propose
    assert identity(plain) == identity(default) and plain.options is None
    assert identity(asked) == {**identity(plain), "points_per_side": 4}
    assert isinstance(asked, ProposerConfig)
