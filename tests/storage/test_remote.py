"""What clients of object stores raise and do, each in its own way."""

from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace

import pytest
from fsspec.asyn import get_loop

from glit.errors import StorageError
from glit.storage import remote
from glit.storage.remote import RangeFile, copy_remote, own_name, translate_storage_errors
from glit.storage.store import Store


class Blob:
    """One of Azure's, whose copy takes a while."""

    def __init__(self, *states: str) -> None:
        self._states = list(states)
        self.asked = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def get_blob_properties(self):
        self.asked += 1
        status = self._states.pop(0)
        return SimpleNamespace(copy=SimpleNamespace(status=status, status_description="why"))


def azure(blob: Blob):
    return SimpleNamespace(
        loop=get_loop(),
        cp_file=lambda source, target: None,
        split_path=lambda path: (*path.split("/", 1), None),
        service_client=SimpleNamespace(get_blob_client=lambda container, name: blob),
    )


def test_a_copy_on_azure_is_waited_for(monkeypatch):
    monkeypatch.setattr(remote, "_COPY_LOOK_S", 0)
    blob = Blob("pending", "pending", "success")
    copy_remote(azure(blob), "c/a", "c/b")
    assert blob.asked == 3
    with pytest.raises(OSError, match="did not copy it .aborted: why"):
        copy_remote(azure(Blob("pending", "aborted")), "c/a", "c/b")


def raised(error: BaseException, **how: bool) -> BaseException:
    try:
        with translate_storage_errors("az://c/x", **how):
            raise error
    except (OSError, StorageError) as found:
        return found
    raise AssertionError


class AzureError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(f"{code}\nRequestId: 1")
        self.error_code = SimpleNamespace(value=code)


class HttpError(Exception):
    """As gcsfs has it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"what, {code}")
        self.code = code


@pytest.mark.parametrize(
    "error",
    [OSError("Forbidden: http://x\nsomebody"), AzureError("AuthorizationPermissionMismatch")],
)
def test_one_object_that_may_not_be_read_is_told_from_a_bad_key(error):
    assert isinstance(raised(error, of_object=True), PermissionError)
    found = raised(error)
    assert isinstance(found, StorageError) and found.keys and "\n" not in str(found)


@pytest.mark.parametrize("error", [HttpError(416), AzureError("InvalidRange")])
def test_an_object_that_became_shorter(error):
    assert "shorter than it was" in str(raised(error, of_object=True))
    assert isinstance(raised(error), StorageError)


@pytest.mark.parametrize(("code", "keys"), [(401, True), (400, False), (503, False)])
def test_what_google_says_of_a_key(code, keys):
    found = raised(HttpError(code), of_object=True)
    assert isinstance(found, StorageError) and found.keys == keys


def test_what_adlfs_hides_is_told():
    hidden = RuntimeError("Failed to remove %s for %s", "x")
    hidden.__cause__ = AzureError("ServerBusy")
    assert str(raised(hidden)).startswith("az://c/x: ServerBusy; when")


def test_a_name_that_the_client_takes_for_another_is_not_asked_for(s3):
    store = Store(s3.url("names"))
    store.write("a", b"1")
    s3.requests.clear()
    with pytest.raises(FileNotFoundError, match="cannot ask for such a name; rename it"):
        store.read("a?versionId=7")
    assert s3.requests == [] and store.entry("a?versionId=7").size == -1
    assert own_name(store._fs, "bucket/a b?#%41") == "bucket/a b?#%41"


def test_a_bucket_that_is_not_there(s3):
    for use in (
        lambda: Store("s3://none/x").write("a", b""),
        lambda: [*Store("s3://none/x").walk()],
    ):
        with pytest.raises(StorageError, match="s3://none/x.*: there is no such bucket; when"):
            use()
    with contextlib.suppress(FileNotFoundError):
        Store("s3://none/x").read("a")
    assert Store("s3://none/x").names() == set()


@pytest.mark.parametrize(("size", "asked"), [(1 << 16, 1), ((1 << 16) + 1, 3)])
def test_a_small_file_is_fetched_by_one_request_and_a_large_one_by_its_parts(size, asked):
    data, ranges = bytes(range(256)) * (size // 256) + b"x" * (size % 256), []

    def fetch(start: int, end: int) -> bytes:
        ranges.append((start, end))
        return data[start:end]

    file = RangeFile(fetch, size)
    assert file.seek(-7, io.SEEK_END) == size - 7 and file.read() == data[-7:]
    assert file.read(1) == b""
    file.seek(5)
    assert (file.read(3), file.read(100), file.tell()) == (data[5:8], data[8:108], 108)
    assert len(ranges) == asked
