"""Two builds never share a work folder, on an object store neither."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from datetime import timedelta

import fsspec
import pytest
from faulty_proxy import times
from fsspec.config import conf

from glit.errors import RunError, StorageError, UserError
from glit.pipeline.work import build_lock as one_build
from glit.pipeline.work.build_lock import BEAT_S, DEAD_AFTER_S, only_one_build, take
from glit.storage.store import Store


@pytest.fixture(params=["memory", "s3"])
def work(request):
    if request.param == "s3":
        s3 = request.getfixturevalue("s3")
        yield Store(s3.url(f"{request.node.name}/out/work"))
        return
    yield Store("memory://locks/out/work")
    with contextlib.suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm("/locks", recursive=True)


def said(work) -> dict[str, dict]:
    return {n: json.loads(work.read(f"lock/{n}")) for n in sorted(work.names("lock"))}


def from_elsewhere(work, **changes) -> None:
    """The lock looks as if another machine held it."""
    (name,) = said(work)
    found = {**said(work)[name], "machine": "other/1", "released": False, **changes}
    work.write(f"lock/{name}", json.dumps(found).encode())


def test_a_second_build_is_refused_by_the_holders_name(work):
    refused = f"out: another glit is building here .pid {os.getpid()} on .*, since 20.*; wait"
    with only_one_build(work), pytest.raises(UserError, match=refused), only_one_build(work):
        pass
    with only_one_build(work) as still_held:
        still_held()
    assert [(name, found["released"]) for name, found in said(work).items()] == [("00000002", True)]


def test_of_two_who_find_it_free_one_wins(work, monkeypatch):
    """The other one had looked before the first one wrote."""
    with only_one_build(work):
        pass
    numbers = one_build._numbers(work)
    monkeypatch.setattr(one_build, "_numbers", lambda _: numbers)
    first = take(work)
    with pytest.raises(UserError, match="another glit is building here .pid"):
        take(work)
    assert said(work)[first.name]["token"] == first.said["token"]


def test_a_lock_whose_answer_was_lost_is_held(s3, monkeypatch):
    """The client asks again, and is told that there is one already: its own."""
    now = {"retries": {"mode": "standard", "total_max_attempts": 2}, "read_timeout": 0.3}
    monkeypatch.setitem(conf, "s3", {"config_kwargs": now})
    work = Store(s3.url("lost-answer/out/work"))
    with s3.failing(times("silent", 1, "PUT", within="/lock/00000001")):
        held = take(work)
    assert s3.faults == ["silent"]
    assert said(work)["00000001"]["token"] == held.said["token"]


def test_a_lock_that_may_not_be_read_is_one_line(s3):
    work = Store(s3.url("denied/out/work"))
    held = take(work)
    with (
        s3.failing(lambda method, path: "denied" if method == "GET" and "/lock/0" in path else ""),
        pytest.raises(StorageError, match="lock/00000001: Access Denied; renew or change the keys"),
    ):
        held.beat()
    held.beat()
    held.check()


def test_a_store_that_overwrites_where_it_is_to_create_is_refused(work, monkeypatch):
    monkeypatch.setattr(Store, "create", Store.write)
    refused = "out: this store overwrites an object .* build into a folder, and copy"
    with pytest.raises(UserError, match=refused), only_one_build(work):
        pass
    assert said(work) == {}


def test_a_dead_process_of_this_machine_is_no_holder(work):
    with only_one_build(work):
        pass
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    from_elsewhere(work, machine=one_build._machine(), pid=gone.pid)
    with only_one_build(work) as still_held:
        still_held()
    assert [*said(work)] == ["00000002"]


def test_a_holder_elsewhere_lives_as_long_as_it_writes(work, monkeypatch):
    with only_one_build(work):
        pass
    from_elsewhere(work, holder="pid 7 on far")
    with pytest.raises(UserError, match="pid 7 on far"), only_one_build(work):
        pass
    at = type(work).modified

    def long_ago(store, path):
        old = timedelta(seconds=DEAD_AFTER_S + 1)
        return at(store, path) - (old if path.endswith("00000001") else timedelta())

    monkeypatch.setattr(Store, "modified", long_ago)
    with only_one_build(work) as still_held:
        still_held()
    assert [*said(work)] == ["00000002"]


def test_who_was_taken_for_dead_stops(work):
    held = take(work)
    work.write("lock/00000002", b'{"holder": "pid 7 on far"}')
    before = work.read("lock/00000001")
    held.beat()
    with pytest.raises(RunError, match="another build took over"):
        held.check()
    assert work.read("lock/00000001") == before


def test_who_finds_another_in_its_place_stops(work):
    held = take(work)
    work.write("lock/00000001", b'{"holder": "pid 7 on far", "token": "7"}')
    held.beat()
    with pytest.raises(RunError, match="another build took over"):
        held.check()
    assert said(work)["00000001"]["token"] == "7"


def test_who_has_not_looked_for_long_looks_before_it_goes_on(work):
    """As after a sleep, from which its main thread may wake up first."""
    held = take(work)
    held.seen_at -= one_build._LOOK_AGAIN_S + 1
    held.check()
    work.write("lock/00000002", b'{"holder": "pid 7 on far"}')
    held.check()
    held.seen_at -= one_build._LOOK_AGAIN_S + 1
    with pytest.raises(RunError, match="another build took over"):
        held.check()


def test_a_holder_writes_often_enough():
    assert BEAT_S * 5 < DEAD_AFTER_S
    assert BEAT_S * 2 < one_build._LOOK_AGAIN_S < DEAD_AFTER_S / 2
