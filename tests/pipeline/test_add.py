"""Images that came since the build: what they bring, what it costs, and what stays as it was."""

from __future__ import annotations

import io
import json
import tarfile

import pyarrow.parquet as pq
import pytest
from adding import (
    FIRST,
    NEW,
    OLD,
    OVERRIDES,
    Notes,
    moved,
    put,
    rows,
    run_add,
)
from building import Counting, counts, data_bytes, edit_state, quiet, run_build

from glit.curate.pair_again import pair_again
from glit.dataset.manifest import SeriesCounts, read_manifest
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import InputError, UserError
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.work.build_lock import clean
from glit.storage.store import Store


def test_what_is_added_is_what_one_build_of_all_would_hold(old, added, tmp_path):
    run_build(added / "in", tmp_path / "one", overrides=OVERRIDES)
    # of two files with the same bytes the dataset names that which it had, a build the first
    both = [rows(each, "source_path", "image") for each in (added / "out", tmp_path / "one")]
    assert both[0] == both[1]
    assert len(both[0]) == len(OLD) + len(NEW)
    manifest = read_manifest(Store(added / "out"))
    assert counts(manifest) == (13, 11, 1, 1)
    assert counts(manifest) == counts(read_manifest(Store(tmp_path / "one")))
    assert manifest.additions == (SeriesCounts(ingested=6, shipped=4, dropped=1, duplicates=1),)
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


@pytest.mark.slow
def test_again_and_again_with_a_limit(scenes, world, tmp_path):
    put(scenes, world / "in", *NEW)
    first = run_add(world, limit=3)
    assert first.balance == SeriesCounts(ingested=3, shipped=3, dropped=0, duplicates=0)
    files = data_bytes(world / "out")
    second = run_add(world)
    assert len(second.manifest.additions) == 2
    put(scenes, world / "in", "000011.png")
    executor = Counting()
    third = run_add(world, executor=executor)
    assert set(executor.stages.values()) == {1}
    assert [each.shipped for each in third.manifest.additions] == [3, 1, 1]
    assert data_bytes(world / "out").items() >= files.items()
    assert list(verify(str(world / "out"))) == []
    run_build(world / "in", tmp_path / "one", overrides=OVERRIDES)
    assert rows(world / "out") == rows(tmp_path / "one")


def test_a_damaged_data_file_is_packed_anew(old, grown):
    first = min((grown / "out" / "data").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    run_add(grown)
    assert first.read_bytes() == data_bytes(old / "out")[first.name]
    assert list(verify(str(grown / "out"))) == []


def test_nothing_usable_among_the_new_is_told_and_no_file_is_written(world):
    (world / "in" / "bad.png").write_bytes(b"no image")
    done = run_add(world)
    assert done.balance == SeriesCounts(ingested=1, shipped=0, dropped=1, duplicates=0)
    assert done.manifest.counts.drops == {"ingest/not_an_image": 1}
    assert not any(name.startswith("train-a") for name in data_bytes(world / "out"))
    assert list(verify(str(world / "out"))) == []


def test_what_is_refused(scenes, old, tmp_path, world):
    out = world / "out"
    with pytest.raises(UserError, match="limit 0: want 1 or more"):
        run_add(world, limit=0)
    with pytest.raises(UserError, match="no dataset here"):
        add(str(tmp_path / "none"), LocalExecutor(), quiet())
    work, state = out / "work", out / "work" / "state.json"
    told = state.read_bytes()
    edit_state(work, lambda state: state.update(images=str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match="nowhere: no such folder; the dataset was built from it"):
        run_add(world)
    state.write_bytes(told)
    edit_state(work, lambda state: state["folders"].update(score="score-0123"))
    with pytest.raises(UserError, match=r"models, prompt or glit changed .*stage score"):
        run_add(world)
    state.write_bytes(told)
    edit_state(work, lambda state: state.pop("source"))
    with pytest.raises(UserError, match=r"state\.json: 'source': is missing; run glit build again"):
        run_add(world)
    state.write_bytes(told)
    edit_state(work, lambda state: state.update(published=None))
    with pytest.raises(UserError, match="does not tell what the dataset was made of"):
        run_add(world)
    retry(str(out), LocalExecutor(), quiet())
    assert state.read_bytes() == told
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
    assert done.balance == SeriesCounts(ingested=4, shipped=4, dropped=0, duplicates=0)
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
    assert done.balance == SeriesCounts(ingested=5, shipped=4, dropped=0, duplicates=1)
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
    assert run_add(tmp_path).manifest.counts.shipped == len(OLD) + len(NEW) - 1
    run_build(f"{tmp_path}/in/*2.png", tmp_path / "glob" / "out", overrides=OVERRIDES)
    put(scenes, tmp_path / "in", "000012.png", "000013.png")
    assert counts(run_add(tmp_path / "glob").manifest) == (2, 2, 0, 0)


def test_pairs_by_another_rule_of_what_was_added_to(added, tmp_path):
    manifest = pair_again(
        Dataset(added / "out"), tmp_path / "other",
        settings=["pair.rule=centred", "pair.logit_scale=40"],
    )  # fmt: skip
    assert len(manifest.additions) == 1 and FIRST in data_bytes(tmp_path / "other")
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


@pytest.mark.slow
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
    assert done.balance == SeriesCounts(ingested=4, shipped=4, dropped=0, duplicates=0)
    assert FIRST in Store(out).names("data")
    assert list(verify(out)) == []
    assert add(out, LocalExecutor(), quiet()).balance is None
