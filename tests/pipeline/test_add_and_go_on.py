"""Additions that were stopped, and what other commands make of a dataset that was added to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from adding import (
    FIRST,
    OLD,
    OVERRIDES,
    Notes,
    everything,
    moved,
    put,
    put_more,
    rows,
    run_add,
)
from building import Counting, counts, data_bytes, quiet, run_build

from glit.dataset.manifest import read_manifest
from glit.dataset.verify import verify
from glit.errors import RunError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.plain import as_plain
from glit.storage.store import Store


class Killed(BaseException):
    """Nobody catches it."""


class Steps:
    """Counts the steps of files into their places, or out of them, and lets none happen from one
    of these on, so that nothing of what runs on the way out changes a file.

    Args:
        last: number of the step; 0 never comes.
    """

    def __init__(self, last: int = 0) -> None:
        self.last, self.passed = last, 0

    def _step(self) -> None:
        self.passed += 1
        if self.last and self.passed >= self.last:
            raise Killed

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("move", "remove"):
            patch.setattr(Store, name, self._around(getattr(Store, name)))
        atomic = Store.atomic

        @contextlib.contextmanager
        def counted(store, path):
            with atomic(store, path) as temporary:
                yield temporary
                self._step()
            self._step()

        patch.setattr(Store, "atomic", counted)

    def _around(self, method):
        def wrapped(store, *arguments):
            self._step()
            method(store, *arguments)
            self._step()

        return wrapped


@pytest.mark.slow
def test_killed_at_steps_of_files_and_run_again(old, added, grown, tmp_path, monkeypatch):
    """At every step while the dataset is put in place, and at some before."""
    wanted, before = everything(added / "out"), rows(old / "out")
    whole = everything(grown / "out")
    kept = {name: data for name, data in whole.items() if name.startswith("data/")}

    def killed(step: int) -> tuple[int, Path]:
        target, steps = moved(grown, tmp_path / f"at-{step}"), Steps(step)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            steps.install(patch)
            run_add(target)
        return steps.passed, target

    total, target = killed(0)
    assert everything(target / "out") == wanted
    for step in (*range(1, total - 24, 18), *range(total - 24, total + 1)):
        passed, target = killed(step)
        assert passed >= step
        now = everything(target / "out")
        assert now.items() >= kept.items()
        assert now["manifest.json"] in (whole["manifest.json"], wanted["manifest.json"])
        if now["manifest.json"] == whole["manifest.json"]:
            assert rows(target / "out") == before
        run_add(target)
        assert everything(target / "out") == wanted, step
        shutil.rmtree(target)


def test_a_stopped_addition_whose_images_are_taken_away_again(old, grown):
    with pytest.raises(KeyboardInterrupt):
        run_add(grown, executor=Counting(stop_after=5))
    assert status(str(grown / "out"))["adding"]
    with pytest.raises(UserError, match="run glit add again"):
        run_build(grown / "in", grown / "out", overrides=OVERRIDES)
    before = everything(old / "out")
    retry(str(grown / "out"), LocalExecutor(), quiet())  # it is about the dataset of before
    assert everything(grown / "out") == before
    for path in (grown / "in").iterdir():
        if path.with_suffix(".png").name not in OLD:
            path.unlink()
    done = run_add(grown)
    assert done.balance is None
    assert everything(grown / "out") == everything(old / "out")
    found = status(str(grown / "out"))
    assert not found["adding"]
    assert {stage["chunks_done"] for stage in found["stages"]} == {3}
    run_build(grown / "in", grown / "out", overrides=OVERRIDES)


def test_a_build_after_it_does_nothing_or_says_what_to_do(scenes, added, tmp_path):
    world = moved(added, tmp_path / "world")
    executor = Counting()
    manifest = run_build(world / "in", world / "out", overrides=OVERRIDES, executor=executor)
    assert executor.done == {} and manifest == read_manifest(Store(added / "out"))
    put(scenes, world / "in", "000011.png")
    (world / "in" / "000004.png").unlink()
    os.utime(world / "in" / "000005.png")
    told = "are new: 1, that changed, .*: 1, gone: 1. glit add takes in the new ones"
    with pytest.raises(UserError, match=told):
        run_build(world / "in", world / "out", overrides=OVERRIDES)
    notes = Notes()
    after = run_add(world, progress=notes).manifest
    assert counts(after) == (14, 12, 1, 1)
    assert notes.told == [
        "of the dataset's images 1 changed since the build, or their captions or masks did, and 1 "
        "went; their samples stay as they were made"
    ]
    assert list(verify(str(world / "out"))) == []


def test_other_settings_with_replace_keep_what_they_do_not_touch(added, tmp_path):
    world = moved(added, tmp_path / "world")
    executor = Counting()
    other = run_build(
        world / "in", world / "out", executor=executor, replace=True,
        overrides=[*OVERRIDES, "pair.rule=centred", "pair.logit_scale=40"],
    )  # fmt: skip
    assert executor.stages == {"pair": 5}  # three chunks of the build, two of the addition
    assert len(other.additions) == 1 and FIRST in data_bytes(world / "out")
    assert list(verify(str(world / "out"))) == []
    assert run_add(world).balance is None


def test_a_retry_after_it_packs_only_what_changes(scenes, added, tmp_path):
    world = moved(added, tmp_path / "world")
    (world / "in" / "000002.png").unlink()  # of which nothing is asked
    put(scenes, world / "in", "000011.png")
    os.replace(world / "in" / "000011.png", world / "in" / "bad.png")
    (world / "in" / "bad.txt").write_text("A red circle. A blue square.")
    before, executor = data_bytes(world / "out"), Counting()
    after = retry(str(world / "out"), executor, quiet())
    assert counts(after) == (13, 12, 0, 1) and executor.done["pack"] == 1
    (addition,) = after.additions
    assert as_plain(addition) == {"ingested": 6, "shipped": 5, "dropped": 0, "duplicates": 1}
    now = data_bytes(world / "out")
    assert now.keys() == before.keys()
    assert {name for name in now if now[name] != before[name]} == {FIRST}
    assert list(verify(str(world / "out"))) == []
    assert run_add(world).balance is None


def test_lost_tables_are_made_anew_unless_the_dataset_would_change(added, tmp_path, scenes):
    world = moved(added, tmp_path / "world")
    put(scenes, world / "in", "000011.png")
    lost = min((world / "out" / "work").glob("propose-*/000000-*.parquet"))
    content = lost.read_bytes()
    lost.unlink()
    run_add(world)
    assert lost.read_bytes() == content
    put(scenes, world / "in", "000012.png")
    min((world / "out" / "work").glob("ingest-*/000000-*.parquet")).unlink()
    (world / "in" / "000002.png").unlink()
    before = everything(world / "out")
    with pytest.raises(RunError, match="some were lost and their images changed.; run glit retry"):
        run_add(world)
    assert everything(world / "out") == before
    assert list(verify(str(world / "out"))) == []
    retried = retry(str(world / "out"), LocalExecutor(), quiet())
    assert counts(retried) == (14, 11, 2, 1)
    assert counts(run_add(world).manifest) == (15, 12, 2, 1)
    assert list(verify(str(world / "out"))) == []


def test_after_a_retry_that_was_stopped_while_it_packed(scenes, added, tmp_path, monkeypatch):
    """The manifest is gone, but every table is there."""
    world = moved(added, tmp_path / "world")
    put(scenes, world / "in", "000011.png")
    (world / "out" / "manifest.json").unlink()
    with pytest.raises(UserError, match="are new: 1.*Run glit retry"):
        run_build(world / "in", world / "out", overrides=OVERRIDES)
    assert counts(run_add(world).manifest) == (14, 12, 1, 1)
    assert list(verify(str(world / "out"))) == []


def test_after_a_retry_that_was_stopped_when_its_tables_were_in_place(scenes, added, tmp_path):
    world = moved(added, tmp_path / "world")
    put(scenes, world / "in", "000011.png", "000012.png")
    for suffix in (".png", ".txt"):
        os.replace(world / "in" / f"000011{suffix}", world / "in" / f"bad{suffix}")

    class StopsInPack(LocalExecutor):
        def run_job(self, job):
            if job.task.name == "pack":
                raise KeyboardInterrupt
            super().run_job(job)

    with pytest.raises(KeyboardInterrupt):
        retry(str(world / "out"), StopsInPack(), quiet())
    with pytest.raises(RunError, match="a retry was stopped.*run glit retry"):
        run_add(world)
    assert counts(retry(str(world / "out"), LocalExecutor(), quiet())) == (13, 12, 0, 1)
    assert counts(run_add(world).manifest) == (14, 13, 0, 1)
    assert list(verify(str(world / "out"))) == []


def test_without_its_state_it_is_told_what_writes_it(old, world):
    state = world / "out" / "work" / "state.json"
    wanted = json.loads(state.read_text())
    state.unlink()
    with pytest.raises(UserError, match=r"state.json: it is gone; run glit build again"):
        run_add(world)
    run_build(world / "in", world / "out", overrides=OVERRIDES)
    assert json.loads(state.read_text()) == wanted
    assert run_add(world).balance is None


@pytest.mark.parametrize("place", ["data", "end"])
def test_a_damaged_listing_is_told_and_written_anew(added, old, scenes, world, place):
    listing = world / "out" / "work" / "listing.parquet"
    data = bytearray(listing.read_bytes())
    data[{"data": len(data) // 4, "end": -1}[place]] ^= 1
    listing.write_bytes(data)
    with pytest.raises(UserError, match=r"listing is damaged .* again, then add"):
        run_add(world)
    with pytest.raises(UserError, match=r"listing is damaged .* again, then retry"):
        retry(str(world / "out"), LocalExecutor(), quiet())
    run_build(world / "in", world / "out", overrides=OVERRIDES)
    assert everything(world / "out") == everything(old / "out")
    put_more(scenes, world / "in")
    run_add(world)
    assert everything(world / "out") == everything(added / "out")


@pytest.mark.parametrize("damage", ["gone", "a bit"])
def test_without_manifest_and_listing_a_dataset_with_additions_is_not_made_anew_unasked(
    added, tmp_path, damage
):
    world = moved(added, tmp_path / "world")
    (world / "out" / "manifest.json").unlink()
    listing = world / "out" / "work" / "listing.parquet"
    data = bytearray(listing.read_bytes())
    data[len(data) // 4] ^= 1
    listing.unlink() if damage == "gone" else listing.write_bytes(data)
    with pytest.raises(UserError, match=r"gone or damaged since, .* add --replace"):
        run_build(world / "in", world / "out", overrides=OVERRIDES)


def test_a_build_over_a_damaged_listing_with_additions_asks_before_it_makes_all_anew(
    added, tmp_path
):
    world = moved(added, tmp_path / "world")
    listing = world / "out" / "work" / "listing.parquet"
    data = bytearray(listing.read_bytes())
    data[len(data) // 4] ^= 1
    listing.write_bytes(data)
    with pytest.raises(UserError, match="add --replace"):
        run_build(world / "in", world / "out", overrides=OVERRIDES)
    assert everything(world / "out") == everything(added / "out")
