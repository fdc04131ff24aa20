"""Builds on a store of Google's kind: what its client does otherwise than that of S3."""

from __future__ import annotations

import os

import pytest
from aiohttp import ClientTimeout
from building import Counting, counts, data_bytes, run_build, with_captions_beside
from faulty_proxy import times
from fsspec.config import conf

from glit.dataset.query import query
from glit.dataset.verify import verify
from glit.errors import StorageError, UserError
from glit.pipeline.work import build_lock as one_build
from glit.pipeline.work.build_lock import only_one_build, take
from glit.storage.store import Store

OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=2", "propose.backend=grid"]


@pytest.fixture(scope="module")
def few(scenes, tmp_path_factory):
    return with_captions_beside(scenes, tmp_path_factory.mktemp("google") / "few", 3)


@pytest.fixture
def there(few, google):
    """Address of the same images."""
    store = Store(google.url("few"))
    for file in few.iterdir():
        store.write(file.name, file.read_bytes())
    google.requests.clear()
    return store.root


@pytest.fixture
def work(google, request):
    return Store(google.url(f"{request.node.name}/out/work"))


def test_a_build_there_has_the_bytes_of_one_here(few, there, google, tmp_path, monkeypatch):
    output = google.url("built")
    mine = {**conf["gs"], "requests_timeout": ClientTimeout(sock_read=0.5)}
    monkeypatch.setitem(conf, "gs", mine)
    first, second = times("silent", 1, "GET", ".png"), times("broken", 1, "POST", "upload")
    with google.failing(lambda method, path: first(method, path) or second(method, path)):
        run_build(there, output, overrides=OVERRIDES)
    assert sorted(google.faults) == ["broken", "silent"]
    run_build(few, tmp_path / "here", overrides=OVERRIDES)
    store = Store(output)
    found = {name: store.read(f"data/{name}") for name in store.names("data")}
    assert found == data_bytes(tmp_path / "here")
    assert store.read("manifest.json") == (tmp_path / "here" / "manifest.json").read_bytes()
    assert list(verify(output)) == []
    assert query(output, "SELECT count(*) FROM samples").fetchall() == [(3,)]
    again = Counting()
    run_build(there, output, overrides=OVERRIDES, executor=again)
    assert again.done == {}


def test_of_many_builds_one_holds_the_lock(work, monkeypatch):
    with only_one_build(work):
        refused = f"another glit is building here .pid {os.getpid()} on "
        with pytest.raises(UserError, match=refused), only_one_build(work):
            pass
        numbers = one_build._numbers(work)
    monkeypatch.setattr(one_build, "_numbers", lambda _: numbers)
    first = take(work)
    with pytest.raises(UserError, match="another glit is building here"):
        take(work)
    assert work.names("lock") == {first.name}


def test_a_store_that_cannot_keep_two_builds_apart_is_refused(work, google, monkeypatch):
    monkeypatch.setattr(google, "knows_create", False)
    message = "out: this store overwrites an object where it is asked to make a new one"
    with pytest.raises(UserError, match=message), only_one_build(work):
        pass
    assert work.names("lock") == set()


def test_it_is_listed_flat(google):
    """An object that is named like a folder is there, and so is what lies below it."""
    store = Store(google.url("flat"))
    names = {"0", "1", "a//b", "dir", "dir/in", "[x]?#%41.png", "ü"}
    for name in names:
        store.write(name, b"12")
    store.write("folder/", b"")
    found = list(store.walk())
    assert {(entry.path, entry.size) for entry in found} == {(name, 2) for name in names}
    assert {e.stamp for e in found if e.path == "dir"} == {store.entry("dir").stamp}


def test_an_object_that_may_not_be_read_is_dropped_and_a_key_that_expired_is_not(there, google):
    with google.failing(times("denied", 1, "GET", "000001.png")):
        manifest = run_build(there, google.url("denied"), overrides=OVERRIDES)
    assert counts(manifest) == (3, 2, 1, 0)
    assert manifest.counts.drops == {"ingest/unreadable": 1}
    with (
        google.failing(lambda method, path: "expired" if ".png" in path else ""),
        pytest.raises(StorageError, match="expired .*; renew or change the keys, then"),
    ):
        run_build(there, google.url("expired"), overrides=OVERRIDES)
    assert not Store(google.url("expired/work")).names("ingest")


def test_an_object_that_became_shorter_and_a_bucket_that_is_not_there(google):
    store = Store(google.url("shorter"))
    store.write("a", b"123")
    assert store.read_range("a", 1, 9) == b"23"
    with pytest.raises(StorageError, match="gs://none/x/a: there is no such bucket"):
        Store("gs://none/x").write("a", b"1")
