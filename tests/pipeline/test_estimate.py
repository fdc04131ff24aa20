"""What a large build would take, by a small one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from building import noise

import glit
from glit.errors import UserError
from glit.pipeline import estimate as module
from glit.pipeline.work.timeline import StageTime, Timeline


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    """A build of eight images, one of them damaged; nothing writes into it."""
    folder = tmp_path_factory.mktemp("estimate")
    images = noise(folder / "images", 8)
    (images / "0.png").write_bytes(b"no picture")
    lines = [{"path": f"{n}.png", "caption": "A ball. A box."} for n in range(8)]
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    glit.build(
        images, folder / "pilot", recipe="captions-only", captions=folder / "captions.jsonl",
        executor="local", quiet=True,
    )  # fmt: skip
    return folder / "pilot"


def timed(monkeypatch, *runs):
    monkeypatch.setattr(module, "read_timelines", lambda store: list(runs))


def stages(**places):
    """Two workers of each, that share 8 s of work in bins of a second, and 2 s lost."""
    return {
        name: StageTime(
            place=place, workers=2, busy_s=[2.0, 2.0, 2.0, 0.0, 1.0, 1.0, 2.0], lost_s=2, units=1
        )
        for name, place in places.items()
    }


def test_a_real_build_is_timed_and_the_command_prints_it(pilot, run_glit):
    found = glit.estimate(pilot, images=8_000, cores=4, price=2)
    assert [each.stage for each in found.stages] == ["ingest", "caption", "split", "ledger", "pack"]
    assert all(0 < each.hours[0] <= each.hours[1] for each in found.stages)
    assert [each.samples for each in found.stages] == [8000, 7000, 7000, 7000, 7000]
    assert (found.shipped, found.data_files, found.caption_tokens) == (7000, 8, 7000 * 6)
    assert found.work_files == 32 * 4  # chunks of 256; three steps that keep tables, the ledger
    assert found.cost == tuple(2 * hours for hours in found.hours)
    done = run_glit("estimate", pilot, "-n", "8k", "--cores", "4", "--price", "2")
    assert done.code == 0 and "cost: " in done.output and "7000 samples" in done.output
    plain = json.loads(run_glit("estimate", pilot, "-n", "8k", "--cores", "4", "--json").output)
    assert plain["hours"] == list(found.hours) and plain["cost"] is None


def test_work_files_are_those_that_a_build_writes(pilot):
    written = len([*(pilot / "work").glob("*/*.parquet")])
    assert glit.estimate(pilot, images=8).work_files == written == 4  # one chunk
    sizes = {300: 19, 100: 16, 5_000: 256}  # images in a chunk: a sixteenth of all, 16 to 256
    for images, size in sizes.items():
        assert glit.estimate(pilot, images=images).work_files == 4 * -(-images // size)
    assert glit.estimate(pilot, images=10_000_000).work_files * 7 == 4 * 273_441  # of six stages


def test_stages_of_one_place_take_turns_and_machines_share_them_out(pilot, monkeypatch):
    here = stages(ingest="cpu", caption="cuda", split="cpu")
    timed(monkeypatch, Timeline(start_s=0.0, bin_s=1.0, cores=4, gpus=1, stages=here))
    found = glit.estimate(pilot, images=8 * 3600, gpus=2, cores=8, price=3)
    ingest, caption, _ = found.stages
    # 10 s of two workers less 2 s lost are 4 s at best, and there are bins of 6 s; twice the cores
    assert ingest.hours == pytest.approx((4 / 2, 6 / 2))
    assert caption.hours == pytest.approx((2, 3)) and caption.place == "cuda"
    assert found.hours == pytest.approx((4, 6))  # ingest and split in turn, caption beside them
    assert found.cost == pytest.approx((4 * 2 * 3, 6 * 2 * 3))
    assert glit.estimate(pilot, images=8, price=3).gpus == 1
    given = glit.estimate(pilot, images=8 * 3600, gpus=2, cores=8, rates={"caption": 0.35})
    assert given.stages[1].source == "given"
    assert given.stages[1].hours == pytest.approx((7 * 3600 / 0.7 / 3600,) * 2)
    assert given.hours[0] == pytest.approx(10)


@pytest.mark.parametrize(
    ("named", "seen", "note"),
    [
        ("2xH100", ["NVIDIA H100 80GB HBM3"], ""),
        ("2", ["NVIDIA A10"], ""),
        ("2xA100", ["NVIDIA A10"], "(NVIDIA A10) and were not measured on A100"),
        ("2xH100", [], "(not recorded) and were not measured on H100"),
    ],
)
def test_rates_of_another_card_are_said_to_be(pilot, monkeypatch, run_glit, named, seen, note):
    here = stages(ingest="cpu", caption="cuda", split="cpu")
    line = Timeline(start_s=0.0, bin_s=1.0, cores=4, gpus=1, stages=here, gpu_names=seen)
    timed(monkeypatch, line)
    found = glit.estimate(pilot, images=8, gpus=named)
    assert found.gpus == 2 and found.gpu_note.endswith(note) and bool(found.gpu_note) == bool(note)
    assert found.hours == glit.estimate(pilot, images=8, gpus=2).hours
    given = glit.estimate(pilot, images=8, gpus=named, rates={"caption": 1})
    assert given.gpu_note == ""
    printed = run_glit("estimate", pilot, "-n", "8", "--gpus", named).output
    assert note in printed and ("note: " in printed) == bool(note)


def test_all_runs_of_a_build_count(pilot, monkeypatch):
    run = Timeline(
        start_s=0.0, bin_s=1.0, cores=4, stages=stages(ingest="cpu", caption="cpu", split="cpu")
    )
    timed(monkeypatch, run)
    once = glit.estimate(pilot, images=100)
    stopped = {name: replace(each, units=0) for name, each in run.stages.items()}
    timed(monkeypatch, run, replace(run, start_s=9.0, stages=stopped))
    assert glit.estimate(pilot, images=100).hours == pytest.approx([2 * h for h in once.hours])


def test_a_given_rate_of_a_stage_whose_run_had_no_gpu(pilot, monkeypatch):
    here = stages(ingest="cpu", caption="cuda", split="cpu")
    timed(monkeypatch, Timeline(start_s=0.0, bin_s=1.0, cores=4, gpus=0, stages=here))
    caption = glit.estimate(pilot, images=3600, rates={"caption": 2}).stages[1]
    assert caption.hours == pytest.approx((7 / 8 / 2, 7 / 8 / 2))


def test_what_cannot_be_is_refused_in_a_line(pilot, monkeypatch, run_glit):
    with pytest.raises(UserError, match="images 0: want 1 or more"):
        glit.estimate(pilot, images=0)
    with pytest.raises(UserError, match="price nan: want 0 or more"):
        glit.estimate(pilot, images=1, price=float("nan"))
    with pytest.raises(UserError, match="--rate capton: .* did you mean 'caption'"):
        glit.estimate(pilot, images=1, rates={"capton": 1})
    with pytest.raises(UserError, match="rate of caption inf: want more than 0"):
        glit.estimate(pilot, images=1, rates={"caption": float("inf")})
    for wrong in (
        ["-n", "many"],
        ["-n", "5kB"],
        ["-n", "1k", "--rate", "caption"],
        ["-n", "1k", "--rate", "caption=12/h"],
        ["-n", "1k", "--gpus", "-1"],
        ["-n", "1k", "--gpus", "8yH100"],
    ):
        assert run_glit("estimate", pilot, *wrong).code == 2
    timed(monkeypatch, Timeline(start_s=0.0, stages=stages(ingest="cpu")))  # of an earlier version
    with pytest.raises(UserError, match="the times of its build were not noted"):
        glit.estimate(pilot, images=1)
    timed(monkeypatch, Timeline(start_s=0.0, cores=1, stages=stages(ingest="cpu")))
    with pytest.raises(UserError, match="stage caption: its times are not known; --rate caption="):
        glit.estimate(pilot, images=1)
