"""Object stores and other file systems that are no folder of this machine, through fsspec.

What goes wrong out there becomes one line: files that are missing stay ``FileNotFoundError``, an
object that may not be read stays ``PermissionError``, everything else is a :class:`StorageError`,
so that an expired key stops a build where it would otherwise drop every image.
"""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
from fsspec.config import conf
from fsspec.core import url_to_fs

from glit.errors import MissingExtraError, StorageError, UserError, first_line

CREDENTIALS = frozenset(
    {
        "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken",
        "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    }
)  # fmt: skip
"""Codes of S3 that a whole key meets, not an object."""
_BEYOND_END = frozenset({"InvalidRange", "416"})
_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs",
    "az": "az", "abfs": "az", "abfss": "az", "adl": "az",
}  # fmt: skip
"""Which extra opens which kind of address."""
_MODULES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        # a request is tried four times by botocore, and a broken connection a few times by s3fs
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": 4},
            "connect_timeout": 10,
            "read_timeout": 60,
            "max_pool_connections": 64,
        },
        "max_concurrency": 1,  # more would ask for the size of every object before reading it
    }
}


def open_remote(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of an address, and the address as a path there.

    What the user has set for it in fsspec's own configuration goes before glit's settings.

    Raises:
        UserError: an address of a kind that nothing installed here opens.
    """
    kind = address.partition("://")[0].lower()
    extra = _EXTRAS.get(kind, "")
    known = conf.get(extra or kind, {})
    options = {**_OPTIONS.get(extra, {}), "use_listings_cache": False, **known}
    try:
        fs, base = url_to_fs(address, **options)
    except ImportError as error:
        if extra:
            raise MissingExtraError(_MODULES[extra], extra=extra, needed_for=address) from error
        raise UserError(f"{address}: cannot be opened ({error})") from error
    except (ValueError, TypeError) as error:  # no such kind of address, or not of that form
        raise UserError(f"{address}: cannot be opened ({error})") from error
    return fs, str(base).rstrip("/")


@contextlib.contextmanager
def one_line(where: str, *, of_object: bool = False) -> Iterator[None]:
    """What a file system raises, as this module says.

    Args:
        where: the address.
        of_object: whether one object is read, which alone may be out of bounds.

    Raises:
        FileNotFoundError: there is no such object.
        FileExistsError: there is, and it was not to be replaced.
        PermissionError: of one object.
        OSError: one object ends before what is read of it.
        StorageError: everything else.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, StorageError):
        raise
    except Exception as error:
        code = _code(error)
        if of_object and isinstance(error, PermissionError) and code not in CREDENTIALS:
            raise
        if of_object and code in _BEYOND_END:
            raise OSError(errno.EINVAL, "it is shorter than it was") from error
        raise StorageError(where, first_line(error), keys=_is_about_keys(error, code)) from error


def _code(error: BaseException) -> str:
    """What S3 calls the error; empty for what is none of S3's."""
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _is_about_keys(error: BaseException, code: str) -> bool:
    named = type(error).__name__
    return (
        code in CREDENTIALS
        or code in ("400", "401")  # what is left of them where an answer has no body
        or isinstance(error, PermissionError)
        or "Credential" in named
        or named in ("RefreshError", "ClientAuthenticationError", "TokenRetrievalError")
    )


def remove_remote(fs: Any, path: str) -> None:
    """Remove an object or a whole folder.

    Raises:
        FileNotFoundError: there is none.
    """
    if not _GLOB & set(path):
        fs.rm(path, recursive=True)
        return
    for each in fs.find(path) or [path]:  # fsspec's rm takes the name for a pattern
        fs.rm_file(each)


def stamp_of(info: dict[str, Any]) -> str:
    """What changes when the object does: its tag, else its time."""
    for key in ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated"):
        if info.get(key):
            return str(info[key])
    return ""


def walk_remote(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    """Path below ``base``, bytes and stamp of every object, a page in memory at a time.

    S3 is listed by pages of a thousand; other systems folder by folder.
    """
    if hasattr(fs, "call_s3"):
        yield from _walk_s3(fs, base, where)
        return
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        with one_line(where):
            try:
                found = fs.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
        for info in found:
            path = str(info["name"]).rstrip("/")
            if info["type"] == "directory":
                if path != folder:
                    waiting.append(path)
            else:
                yield _below(path, base), int(info.get("size") or 0), stamp_of(info)


def _walk_s3(fs: Any, base: str, where: str) -> Iterator[tuple[str, int, str]]:
    bucket, key, _ = fs.split_path(base)
    prefix = f"{key}/" if key else ""
    token: dict[str, str] = {}
    while True:
        with one_line(where):
            page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **token)
        for item in page.get("Contents", ()):
            if not item["Key"].endswith("/"):  # a folder, as consoles make them
                yield item["Key"].removeprefix(prefix), int(item["Size"]), stamp_of(item)
        if not page.get("IsTruncated"):
            return
        token = {"ContinuationToken": page["NextContinuationToken"]}


def _below(path: str, base: str) -> str:
    return path.lstrip("/").removeprefix(base.strip("/") + "/")


_GLOB = frozenset("*?[")


class RangeFile(io.RawIOBase):
    """A file to read from any place; each read is one request for that range and no more.

    Args:
        fetch: the bytes from a start up to an end.
        size: of the file, in bytes.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = self._fetch(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
