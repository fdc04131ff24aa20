"""A dataset without its resumable state."""

from __future__ import annotations

import fcntl

import pytest

from glit.dataset.verify import verify
from glit.errors import UserError
from glit.pipeline.status import status
from glit.pipeline.work.build_lock import clean, only_one_build
from glit.storage.store import Store


def test_clean_leaves_a_dataset_that_verifies(built_copy):
    work = built_copy / "work"
    size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    assert clean(str(built_copy)) == size
    assert not (built_copy / "work").exists()
    assert list(verify(str(built_copy))) == []
    assert status(str(built_copy))["complete"]


def test_a_build_at_work_keeps_its_folder(built_copy):
    with (
        only_one_build(Store(built_copy / "work")),
        pytest.raises(UserError, match="another glit is building here"),
    ):
        clean(str(built_copy))
    assert (built_copy / "work" / "state.json").exists()
    assert clean(str(built_copy)) > 0
    assert clean(str(built_copy)) == 0


def test_a_build_that_starts_while_its_folder_is_removed_is_alone_and_loses_nothing(
    built_copy, monkeypatch
):
    """It opened the lock's file before it was removed, and locks it afterwards."""
    work = Store(built_copy / "work")
    flock, cleaned = fcntl.flock, []

    def late(handle, how):
        if not cleaned:
            cleaned.append(True)
            clean(str(built_copy))
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with only_one_build(work):
        work.write("state.json", b"{}")
        with pytest.raises(UserError, match="another glit is building here"), only_one_build(work):
            pass
    assert work.names() == {"state.json"}


def test_the_lock_goes_last(built_copy, monkeypatch):
    work, remove, refused = Store(built_copy / "work"), Store.remove, []

    def beside(store, path):
        if path != ".lock":
            with pytest.raises(UserError, match="another glit"), only_one_build(work):
                pass
            refused.append(path)
        remove(store, path)

    monkeypatch.setattr(Store, "remove", beside)
    clean(str(built_copy))
    assert "state.json" in refused and not (built_copy / "work").exists()


def test_clean_looks_again_once_it_holds_the_folder(built_copy, monkeypatch):
    flock = fcntl.flock

    def late(handle, how):
        (built_copy / "manifest.json").unlink(missing_ok=True)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UserError):
        clean(str(built_copy))
    assert (built_copy / "work" / "state.json").exists()
