import errno

import fsspec
import pytest

from glit.storage import Store


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    if request.param == "local":
        yield Store(tmp_path / "root")
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
    with pytest.raises(OSError):
        store.read("nothing")
    assert store.entry("nothing").size == -1
