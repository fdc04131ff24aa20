"""Images that came since the build: what they bring, what it costs, and what stays as it was."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from building import Counting, counts, data_bytes, quiet, run_build
from rich.console import Console

from glit.build.add import add
from glit.build.clean import clean
from glit.build.pair_again import pair_again
from glit.build.retry import retry
from glit.build.status import status
from glit.dataset.manifest import read_manifest
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import InputError, RunError, UserError
from glit.executors.local import LocalExecutor
from glit.progress import StageProgress
from glit.storage import Store

OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=3", "propose.backend=grid"]
OLD = [f"{number:06d}.png" for number in range(2, 9)]
NEW = ["000000.png", "000001.png", "000009.png", "000010.png"]
FIRST = "train-a0001-00000-of-00001.parquet"
"""What the first addition of a few images writes."""


def put(scenes: Path, folder: Path, *names: str) -> None:
    """Scenes with their captions beside."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in (scenes / "captions.jsonl").read_text().splitlines()]
    captions = {Path(row["path"]).name: row["caption"] for row in rows}
    for name in names:
        shutil.copy2(scenes / "images" / name, folder)
        (folder / name).with_suffix(".txt").write_text(captions[name])


def put_more(scenes: Path, folder: Path) -> None:
    """Scenes before and after the old ones, a copy of an old one, and a file that is no image."""
    put(scenes, folder, *NEW)
    for suffix in (".png", ".txt"):
        shutil.copy2(folder / f"000003{suffix}", folder / f"000000-copy{suffix}")
    (folder / "bad.png").write_bytes(b"no image")


@pytest.fixture(scope="module")
def old(scenes, tmp_path_factory) -> Path:
    """A folder with images and their dataset; not to be written into."""
    folder = tmp_path_factory.mktemp("old")
    put(scenes, folder / "in", *OLD)
    run_build(folder / "in", folder / "out", overrides=OVERRIDES)
    return folder


def moved(folder: Path, target: Path) -> Path:
    """A copy that works as if it had been built there."""
    shutil.copytree(folder, target)
    state = target / "out" / "work" / "state.json"
    told = json.loads(state.read_text())
    state.write_text(json.dumps(told | {"images": str(target / "in")}))
    return target


@pytest.fixture
def world(old, tmp_path) -> Path:
    """A copy of the same to work on."""
    return moved(old, tmp_path / "world")


@pytest.fixture
def grown(scenes, world) -> Path:
    """The same with more images in the folder."""
    put_more(scenes, world / "in")
    return world


@pytest.fixture(scope="module")
def added(scenes, old, tmp_path_factory) -> Path:
    """The same with these added, undisturbed; not to be written into."""
    folder = moved(old, tmp_path_factory.mktemp("added") / "world")
    put_more(scenes, folder / "in")
    run_add(folder)
    return folder


def run_add(world: Path, *, executor=None, progress=None, **options):
    return add(str(world / "out"), executor or LocalExecutor(), progress or quiet(), **options)


def rows(dataset: Path, *left_out: str) -> dict[str, dict]:
    """By sample, everything that the dataset says of it."""
    table = Dataset(dataset).table()
    return {row["sample_id"]: row for row in table.drop_columns(list(left_out)).to_pylist()}


def everything(dataset: Path) -> dict[str, bytes]:
    """The dataset's files, but not its work folder."""
    return {
        str(path.relative_to(dataset)): path.read_bytes()
        for path in sorted(dataset.rglob("*"))
        if path.is_file() and path.relative_to(dataset).parts[0] != "work"
    }


class Notes(StageProgress):
    def __init__(self):
        super().__init__(Console(quiet=True), quiet=True)
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def test_what_is_added_is_what_one_build_of_all_would_hold(old, added, tmp_path):
    run_build(added / "in", tmp_path / "one", overrides=OVERRIDES)
    # of two files with the same bytes the dataset names that which it had, a build the first
    both = [rows(each, "source_path", "image") for each in (added / "out", tmp_path / "one")]
    assert both[0] == both[1]
    assert len(both[0]) == len(OLD) + len(NEW)
    manifest = read_manifest(Store(added / "out"))
    assert counts(manifest) == (13, 11, 1, 1)
    assert counts(manifest) == counts(read_manifest(Store(tmp_path / "one")))
    assert manifest["additions"] == [{"ingested": 6, "shipped": 4, "dropped": 1, "duplicates": 1}]
    (copy,) = pq.read_table(added / "out" / "duplicates.parquet").to_pylist()
    assert (copy["source_path"], copy["kept_path"]) == ("000000-copy.png", "000003.png")
    assert list(verify(str(added / "out"))) == []
    card = (added / "out" / "README.md").read_text()
    assert "images were added once since, 4 of those here" in " ".join(card.split())


def test_what_was_there_stays_as_it_was_and_costs_nothing(old, grown):
    before, data = data_bytes(old / "out"), grown / "out" / "data"
    inodes = {path.name: path.stat().st_ino for path in data.iterdir()}
    tables = {path: path.read_bytes() for path in (grown / "out" / "work").rglob("*-*/*.parquet")}
    executor = Counting()
    run_add(grown, executor=executor)
    assert executor.stages == dict.fromkeys(
        ("ingest", "caption", "split", "propose", "score", "pair"), 2
    )  # six images in chunks of three
    assert executor.done["ledger"] == 2 and executor.done["pack"] == 1
    assert data_bytes(grown / "out") == before | {FIRST: (data / FIRST).read_bytes()}
    assert {path.name: path.stat().st_ino for path in data.iterdir() if path.name != FIRST} == (
        inodes
    )
    assert all(path.read_bytes() == content for path, content in tables.items())
    paths = [row.source_path for row in Dataset(grown / "out")]
    assert paths == OLD + NEW  # in the order in which they came


def test_nothing_new_leaves_everything_untouched(world):
    def stamps():
        files = [path for path in (world / "out").rglob("*") if path.is_file()]
        return {path: path.stat().st_mtime_ns for path in files if path.name != ".lock"}

    before, executor = stamps(), Counting()
    done = run_add(world, executor=executor)
    assert done.balance is None and done.manifest == read_manifest(Store(world / "out"))
    assert executor.done == {} and stamps() == before


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
    for step in (*range(1, total - 24, 9), *range(total - 24, total + 1)):
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


def test_again_and_again_with_a_limit(scenes, world, tmp_path):
    put(scenes, world / "in", *NEW)
    first = run_add(world, limit=3)
    assert first.balance == {"ingested": 3, "shipped": 3, "dropped": 0, "duplicates": 0}
    files = data_bytes(world / "out")
    second = run_add(world)
    assert len(second.manifest["additions"]) == 2
    put(scenes, world / "in", "000011.png")
    executor = Counting()
    third = run_add(world, executor=executor)
    assert set(executor.stages.values()) == {1}
    assert [each["shipped"] for each in third.manifest["additions"]] == [3, 1, 1]
    assert data_bytes(world / "out").items() >= files.items()
    assert list(verify(str(world / "out"))) == []
    run_build(world / "in", tmp_path / "one", overrides=OVERRIDES)
    assert rows(world / "out") == rows(tmp_path / "one")


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
    assert len(other["additions"]) == 1 and FIRST in data_bytes(world / "out")
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
    assert after["additions"] == [{"ingested": 6, "shipped": 5, "dropped": 0, "duplicates": 1}]
    now = data_bytes(world / "out")
    assert now.keys() == before.keys()
    assert {name for name in now if now[name] != before[name]} == {FIRST}
    assert list(verify(str(world / "out"))) == []
    assert run_add(world).balance is None


def test_a_damaged_data_file_is_packed_anew(old, grown):
    first = min((grown / "out" / "data").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    run_add(grown)
    assert first.read_bytes() == data_bytes(old / "out")[first.name]
    assert list(verify(str(grown / "out"))) == []


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


def test_nothing_usable_among_the_new_is_told_and_no_file_is_written(world):
    (world / "in" / "bad.png").write_bytes(b"no image")
    done = run_add(world)
    assert done.balance == {"ingested": 1, "shipped": 0, "dropped": 1, "duplicates": 0}
    assert done.manifest["counts"]["drops"] == {"ingest/not_an_image": 1}
    assert not any(name.startswith("train-a") for name in data_bytes(world / "out"))
    assert list(verify(str(world / "out"))) == []


def test_what_is_refused(scenes, old, tmp_path, world):
    out = world / "out"
    with pytest.raises(UserError, match="limit 0: want 1 or more"):
        run_add(world, limit=0)
    with pytest.raises(UserError, match="no dataset here"):
        add(str(tmp_path / "none"), LocalExecutor(), quiet())
    state = out / "work" / "state.json"
    told = json.loads(state.read_text())
    state.write_text(json.dumps(told | {"images": str(tmp_path / "nowhere")}))
    with pytest.raises(InputError, match="nowhere: no such folder; the dataset was built from it"):
        run_add(world)
    state.write_text(json.dumps(told | {"folders": told["folders"] | {"score": "score-0123"}}))
    with pytest.raises(UserError, match=r"models, prompt or glit changed .*stage score"):
        run_add(world)
    state.write_text(json.dumps({key: told[key] for key in told if key != "source"}))
    with pytest.raises(UserError, match="was made by another version of glit"):
        run_add(world)
    state.write_text(json.dumps(told))
    noted = out / "work" / "published.sha256"
    content = noted.read_bytes()
    noted.write_bytes(b"\xff")
    with pytest.raises(UserError, match="does not tell what the dataset was made of"):
        run_add(world)
    retry(str(out), LocalExecutor(), quiet())
    assert noted.read_bytes() == content
    clean(str(out))
    with pytest.raises(UserError, match=r"its work folder is gone \(glit clean\)"):
        run_add(world)


def test_an_unfinished_build_is_refused(scenes, world, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_build(
            world / "in", tmp_path / "half", overrides=OVERRIDES, executor=Counting(stop_after=4)
        )
    with pytest.raises(UserError, match="not finished; run glit build again first, then add"):
        add(str(tmp_path / "half"), LocalExecutor(), quiet())
    put(scenes, world / "in", *NEW)
    with pytest.raises(KeyboardInterrupt):  # the dataset of before is still there
        run_build(
            world / "in", world / "out", overrides=OVERRIDES, executor=Counting(stop_after=4),
            replace=True,
        )  # fmt: skip
    with pytest.raises(UserError, match="not finished; run glit build again first, then add"):
        run_add(world)


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


def test_captions_of_a_file_that_has_grown(scenes, tmp_path):
    put(scenes, tmp_path / "in", *OLD)
    lines = (scenes / "captions.jsonl").read_text().splitlines(keepends=True)
    captions = tmp_path / "captions.jsonl"
    captions.write_text("".join(lines[2:8]))  # the last image has none yet
    overrides = ["ingest.chunk_size=3", "propose.backend=grid"]
    how = {"captions": captions, "overrides": overrides}
    assert counts(run_build(tmp_path / "in", tmp_path / "out", **how)) == (7, 6, 1, 0)
    put(scenes, tmp_path / "in", *NEW)
    changed = json.loads(lines[2]) | {"caption": "Another caption of it."}
    captions.write_text("".join([*lines[:2], json.dumps(changed) + "\n", *lines[3:]]))
    before, notes = data_bytes(tmp_path / "out"), Notes()
    done = run_add(tmp_path, progress=notes)
    assert done.balance == {"ingested": 4, "shipped": 4, "dropped": 0, "duplicates": 0}
    assert "images 2 changed" in notes.told[0]  # one has a caption now, and one another
    assert data_bytes(tmp_path / "out").items() >= before.items()
    assert counts(retry(str(tmp_path / "out"), LocalExecutor(), quiet())) == (11, 11, 0, 0)
    assert list(verify(str(tmp_path / "out"))) == []
    with pytest.raises(UserError, match="are new: 0, that changed, .*: 2, gone: 0"):
        run_build(tmp_path / "in", tmp_path / "out", **how)


def test_another_shard_in_the_folder(scenes, tmp_path):
    def shard(name: str, *names: str) -> None:
        with tarfile.open(tmp_path / "in" / name, "w") as archive:
            for each in names:
                data = (scenes / "images" / each).read_bytes()
                for path, content in ((each, data), (f"{each[:-4]}.txt", b"A red circle.")):
                    info = tarfile.TarInfo(path)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))

    (tmp_path / "in").mkdir()
    shard("b.tar", *OLD[:4])
    run_build(tmp_path / "in", tmp_path / "out", overrides=OVERRIDES)
    shard("a.tar", *NEW, OLD[0])
    done = run_add(tmp_path)
    assert done.balance == {"ingested": 5, "shipped": 4, "dropped": 0, "duplicates": 1}
    paths = [row.source_path for row in Dataset(tmp_path / "out")]
    assert paths == [f"b.tar::{name}" for name in OLD[:4]] + [f"a.tar::{name}" for name in NEW]
    assert list(verify(str(tmp_path / "out"))) == []


def test_a_list_and_a_glob_are_asked_again(scenes, tmp_path):
    put(scenes, tmp_path / "in", *OLD, *NEW)
    listed = tmp_path / "in" / "list.txt"
    listed.write_text("".join(f"{name}\n" for name in OLD))
    run_build(listed, tmp_path / "out", overrides=OVERRIDES)
    assert run_add(tmp_path).balance is None
    listed.write_text(listed.read_text() + "".join(f"{name}\n" for name in NEW[1:]))
    assert run_add(tmp_path).manifest["counts"]["shipped"] == len(OLD) + len(NEW) - 1
    run_build(f"{tmp_path}/in/*2.png", tmp_path / "glob" / "out", overrides=OVERRIDES)
    put(scenes, tmp_path / "in", "000012.png", "000013.png")
    assert counts(run_add(tmp_path / "glob").manifest) == (2, 2, 0, 0)


def test_pairs_by_another_rule_of_what_was_added_to(added, tmp_path):
    manifest = pair_again(
        Dataset(added / "out"), tmp_path / "other",
        settings=["pair.rule=centred", "pair.logit_scale=40"],
    )  # fmt: skip
    assert len(manifest["additions"]) == 1 and FIRST in data_bytes(tmp_path / "other")
    assert list(verify(str(tmp_path / "other"))) == []


def test_verify_counts_additions(added, tmp_path):
    world = moved(added, tmp_path / "world")
    path = world / "out" / "manifest.json"
    told = json.loads(path.read_text())

    def breaches(additions: list[dict]) -> list[str]:
        path.write_text(json.dumps(told | {"additions": additions}))
        return list(verify(str(world / "out")))

    (known,) = told["additions"]
    assert breaches([known]) == []
    assert breaches([known | {"shipped": 3}]) == [
        "manifest.json: the balance of addition 1 does not hold",
        "manifest.json: addition 1 shipped 3, but its data files hold 4 rows",
    ]
    assert breaches([]) == ["manifest.json: data files of 1 additions that it does not tell of"]


def test_at_an_address(scenes, s3, tmp_path):
    put(scenes, tmp_path / "in", *OLD)
    images = Store(s3.url("adding"))
    for path in (tmp_path / "in").iterdir():
        images.write(path.name, path.read_bytes())
    out = s3.url("added")
    run_build(images.root, out, overrides=OVERRIDES)
    put(scenes, tmp_path / "more", *NEW)
    for path in (tmp_path / "more").iterdir():
        images.write(path.name, path.read_bytes())
    done = add(out, LocalExecutor(), quiet())
    assert done.balance == {"ingested": 4, "shipped": 4, "dropped": 0, "duplicates": 0}
    assert FIRST in Store(out).names("data")
    assert list(verify(out)) == []
    assert add(out, LocalExecutor(), quiet()).balance is None
