import errno
import os

import fsspec
import pytest

from glit.storage.store import Store


@pytest.fixture(params=["local", "memory", "s3"])
def store(request, tmp_path):
    if request.param == "local":
        yield Store(tmp_path / "root")
        return
    if request.param == "s3":
        s3 = request.getfixturevalue("s3")
        yield Store(s3.url(f"{request.node.name}/"))
        return
    fs = fsspec.filesystem("memory")
    fs.makedirs("/root", exist_ok=True)
    yield Store("memory:///root")
    fs.rm("/root", recursive=True)


def test_what_is_written_can_be_read_listed_moved_and_removed(store):
    store.write("a/b.bin", b"123")
    assert store.read("a/b.bin") == b"123"
    assert store.names("a") == {"b.bin"}
    assert [(entry.path, entry.size) for entry in store.walk()] == [("a/b.bin", 3)]
    store.move("a/b.bin", "c/d.bin")
    assert (store.exists("a/b.bin"), store.read("c/d.bin")) == (False, b"123")
    with store.local_copy("c/d.bin") as path:
        assert path.read_bytes() == b"123"
    store.remove("c")
    assert store.names("c") == set()
    store.remove("c")


def test_a_failed_write_leaves_nothing(store):
    with pytest.raises(OSError, match="full"), store.atomic("x.bin") as path:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "full")
    assert not store.exists("x.bin")
    assert store.names("") == set()


def test_leftovers_of_a_kill_are_swept_and_never_listed(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "t.parquet.tmp-abcd").write_bytes(b"half")
    assert store.names("") == set()
    store.sweep()
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_os_errors(store):
    for read in (store.read, store.open, store.modified if not store.is_local else store.read):
        with pytest.raises(FileNotFoundError):
            read("nothing")
    with pytest.raises(FileNotFoundError), store.local_copy("nothing") as path:
        path.read_bytes()
    assert store.entry("nothing").size == -1
    assert store.names("nothing") == set()


def test_parts_of_a_file(store):
    store.write("a/b", bytes(range(100)))
    store.write("empty", b"")
    assert store.read_range("a/b", 10, 13) == bytes([10, 11, 12])
    assert store.read_range("a/b", 98, 200) == bytes([98, 99])
    assert store.read("empty") == b""
    with store.open("a/b") as file:
        file.seek(-4, 2)
        assert (file.read(2), file.tell(), file.read(), file.read(1)) == (b"`a", 98, b"bc", b"")


def test_of_two_who_create_a_file_one_does(store):
    store.create("x/lock", b"1")
    with pytest.raises(FileExistsError):
        store.create("x/lock", b"2")
    assert store.read("x/lock") == b"1"


def test_what_a_killed_retry_left_is_swept(store):
    store.write("a/1.parquet.retry", b"")
    store.write("a/1.parquet", b"")
    store.sweep(".retry")
    assert store.names("a") == {"1.parquet"}


def test_an_object_store_is_listed_by_pages(s3):
    """A page of the server has a thousand objects; folders as consoles make them are none."""
    store = Store(s3.url("pages"))
    store.write("sub/x", b"12")
    store.write("folder/", b"")
    for number in range(3):
        store.write(f"{number}", b"1")
    with s3.failing(lambda method, path: "small pages" if "list-type" in path else ""):
        found = sorted((entry.path, entry.size) for entry in store.walk())
    assert found == [("0", 1), ("1", 1), ("2", 1), ("sub/x", 2)]
    assert s3.faults == ["small pages"] * 3


def test_an_object_that_became_shorter_is_an_error_of_its_own(s3):
    store = Store(s3.url("shorter"))
    store.write("a", b"123")
    with pytest.raises(OSError, match="shorter than it was"):
        store.read_range("a", 5, 9)


def test_a_folder_that_a_shell_stands_in_is_removed_and_a_linked_one_emptied(tmp_path, monkeypatch):
    store = Store(tmp_path / "root")
    store.write("here/a.bin", b"1")
    monkeypatch.chdir(tmp_path / "root" / "here")
    store.remove("here")
    assert not store.exists("here")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    (tmp_path / "disk" / "deep" / "b.bin").write_bytes(b"2")
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "disk")
    store.remove("linked")
    assert list((tmp_path / "disk").iterdir()) == [] and store.exists("linked")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["read", "open", "range"])
def test_a_pipe_is_not_waited_for(tmp_path, how):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    store = Store(tmp_path)
    read = {"read": store.read, "open": store.open, "range": lambda p: store.read_range(p, 0, 1)}
    for name in ("pipe", "zero"):
        assert store.entry(name).size == -1
        with pytest.raises(OSError, match="not a regular file"):
            read[how](name)


def test_names_below_a_folder_that_looks_temporary():
    store = Store("memory://bucket/x.tmp-run/ds")
    store.write("a.parquet", b"1")
    store.write("b.parquet.tmp-12345678", b"2")
    assert store.names() == {"a.parquet"}
