"""A build stops when a step drops more of its samples than the user allows."""

from __future__ import annotations

import contextlib
import json
import re
from functools import partial

import pytest
from building import captions_only, data_bytes, noise

import glit
from glit.cli.options import shares
from glit.errors import RunError, UserError
from glit.pipeline import run
from glit.pipeline.executors.protocols import Tally
from glit.runtime.limits import Limits, drops_word


@pytest.fixture
def photographs(tmp_path):
    """Forty images, ten of them without a caption and one damaged."""
    folder = noise(tmp_path / "photographs", 40)
    (folder / "0.png").write_bytes(b"no picture")
    numbers = [number for number in range(40) if number % 4 != 1]
    lines = [{"path": f"{n}.png", "caption": f"A ball. Box {n} is red."} for n in numbers]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


words = partial(captions_only, chunk_size=8)


@pytest.fixture
def one_ray(executor):
    """The Ray of this process, if it is wanted: else each of the command lines would start one."""
    with contextlib.ExitStack() as held:
        if executor == "ray":
            from glit.pipeline.executors.on_ray import RayExecutor

            held.callback(RayExecutor().close)
        yield


@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.engine)])
def test_too_many_drops_stop_a_build_that_goes_on_with_a_larger_share(
    photographs, tmp_path, run_glit, executor
):
    out = tmp_path / "out"
    line = words(photographs, out, "--executor", executor)
    stopped = run_glit(*line, "--max-drops", "20%")
    assert stopped.code == 1 and stopped.errors.count("\n") == 1
    assert "stage caption: " in stopped.errors and "no_caption), more than" in stopped.errors
    assert "--max-drops 20%; what is done is kept" in stopped.errors
    assert not (out / "manifest.json").exists()
    again = run_glit(*line, "--max-drops", "20%")  # as a batch system starts it again
    assert again.code == 1 and "stage caption: " in again.errors
    assert not (out / "manifest.json").exists()
    assert run_glit(*line, "--max-drops", "0.5").code == 0
    whole = tmp_path / "whole"
    assert run_glit(*words(photographs, whole, "--executor", "local")).code == 0
    assert data_bytes(out) == data_bytes(whole)


def test_filters_are_there_to_drop(photographs, tmp_path, run_glit):
    settings = ["--set", "quality.enabled=true", "--set", "quality.min_sharpness=1e9"]
    line = words(photographs, tmp_path / "out", "--executor", "local", *settings)
    done = run_glit(*line, "--max-drops", "50%")
    assert "--max-drops" not in done.errors and "no sample was left" in done.errors


def test_an_addition_has_a_limit_of_its_own(photographs, tmp_path, run_glit):
    out = tmp_path / "out"
    assert run_glit(*words(photographs, out, "--executor", "local")).code == 0
    for number in range(40, 60):
        (photographs / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(RunError, match=r"stage ingest: \d+ of \d+ samples were dropped \(\d+ not_"):
        glit.add(out, executor="local", quiet=True, max_drops=0.1)
    assert glit.verify(out) == []


def test_it_is_looked_at_from_the_hundredth_sample_on_and_at_the_end():
    limit = run._DropLimit("caption", {"all": 0.1}, chunks=4)
    limit.count(Tally(rows=90, drops={"refusal": 90}))
    with pytest.raises(RunError, match="stage caption: 90 of 100 samples were dropped .90 refusal"):
        limit.count(Tally(rows=10))
    limit = run._DropLimit("caption", {"all": 0.1}, chunks=2)
    limit.count(Tally(rows=10, drops={"refusal": 2}))
    limit.count(Tally(rows=10))  # 10 % is no more than 10 %
    limit = run._DropLimit("caption", {"all": 0.1}, chunks=1)
    with pytest.raises(RunError, match="2 of 10 samples were dropped"):
        limit.count(Tally(rows=10, drops={"refusal": 1, "looping": 1}))


def test_a_reason_has_a_share_of_its_own(photographs, tmp_path, run_glit):
    line = words(photographs, tmp_path / "out", "--executor", "local")
    stopped = run_glit(*line, "--max-drops", "50%,no_caption=10%")
    told = (
        r"(\d+) of \d+ samples were dropped \(\1 no_caption\), more than --max-drops no_caption=10%"
    )
    assert re.search(told, stopped.errors)
    unknown = run_glit(*line, "--max-drops", "no_captoin=10%")
    assert unknown.code == 2 and "did you mean 'no_caption'?" in unknown.errors
    assert run_glit(*line, "--max-drops", "50%,no_caption=30%").code == 0
    assert run_glit(*line, "--max-drops", "5%,10%").code == 2
    given = "50%,refusal=12.5%"
    assert drops_word(shares(given)) == given
    with pytest.raises(UserError, match="want a share from 0 to 1"):
        Limits(drops={"all": 0.5, "refusal": 2})


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(photographs, tmp_path, share, run_glit):
    with pytest.raises(UserError, match="want a share from 0 to 1"):
        glit.build(photographs, tmp_path / "out", recipe="captions-only", max_drops=share)
    assert run_glit("add", tmp_path, "--max-drops", "some").code == 2
