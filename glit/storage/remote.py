"""Object stores and other remote file systems, through fsspec.

What goes wrong out there becomes one line: files that are missing stay ``FileNotFoundError``, an
object that may not be read stays ``PermissionError``, everything else is a :class:`StorageError`,
so that an expired key stops a build where it would otherwise drop every image.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
from fsspec.asyn import sync
from fsspec.core import url_to_fs

from glit.errors import MissingExtraError, MissingPackage, StorageError, UserError, first_line
from glit.storage.hub import hub_fault
from glit.storage.remote_settings import EXTRAS, S3_TRIES, settings

CREDENTIALS = frozenset(
    {
        "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken",
        "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    }
)  # fmt: skip
"""Codes of S3 that a whole key meets, not an object."""
_BEYOND_END = frozenset({"InvalidRange", "416"})
_MODULES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "models": "huggingface-hub"}
_DENIED_TO_ONE = frozenset({"AuthorizationPermissionMismatch"})
"""Azure's code for an object that this key may not read, while the key itself is good."""
_COPY_LOOK_S = 1.0


def open_remote(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Open the file system of an address; return it and the path within it.

    Its settings are those of :mod:`glit.storage.remote_settings`.

    Raises:
        UserError: an address of a kind that nothing installed here opens.
    """
    kind = address.partition("://")[0].lower()
    extra = EXTRAS.get(kind, "")
    try:
        fs, base = url_to_fs(address, **settings(kind))
    except ImportError as error:
        if extra:
            missing = MissingPackage(package=_MODULES[extra], extra=extra, needed_for=address)
            raise MissingExtraError(missing) from error
        raise UserError(f"{address}: cannot be opened ({error})") from error
    except (ValueError, TypeError) as error:  # no such kind of address, or not of that form
        raise UserError(f"{address}: cannot be opened ({error})") from error
    if extra == "s3":
        fs.retries = S3_TRIES
    if kind == "hf":
        _open_repository(fs, address, str(base))
    return fs, str(base).rstrip("/")


def _open_repository(fs: Any, address: str, path: str) -> None:
    """Look a repository of the Hub up, and forget what was listed of it before.

    Raises:
        UserError: there is none, or no such revision of it.
        StorageError: the Hub cannot be reached, or refuses the token.
    """
    with translate_storage_errors(address):
        try:
            fs.invalidate_cache()
            fs.resolve_path(path)
        except FileNotFoundError as error:
            raise UserError(
                f"{address}: no such repository or revision on the Hub, or a private one; log in "
                "with: hf auth login, or set HF_TOKEN"
            ) from error
        except (ValueError, NotImplementedError) as error:  # its answers to such an address
            raise UserError(f"{address}: want hf://datasets/OWNER/NAME") from error


def exists_remote(fs: Any, path: str) -> bool:
    """Return whether there is an object or a folder; the Hub's file system says no to all it cannot
    see.

    Raises:
        Exception: what the client meets on the Hub.
    """
    if fs.protocol != "hf":
        return bool(fs.exists(path))
    try:
        return bool(fs.info(path))
    except FileNotFoundError:
        return False


def own_name(fs: fsspec.AbstractFileSystem, path: str) -> str:
    """Return the path if the store's client requests exactly this path.

    Raises:
        FileNotFoundError: the client takes a part of the name for something else (``?versionId=``
            on S3; on Azure also a tab, or ``?`` before ``#``) and would ask for another object.
    """
    split = getattr(fs, "split_path", None)
    if split is not None and "/".join(split(path)[:2]).rstrip("/") != path.rstrip("/"):
        raise FileNotFoundError(
            errno.ENOENT, "the client of this store cannot ask for such a name; rename it", path
        )
    return path


@contextlib.contextmanager
def translate_storage_errors(
    where: str, *, of_object: bool = False, of_bucket: bool = False
) -> Iterator[None]:
    """Translate a file system's errors as the module docstring describes.

    Args:
        where: the address.
        of_object: whether one object is read, which alone may be out of bounds.
        of_bucket: whether only its bucket can be missing, as when it is written or listed.

    Raises:
        FileNotFoundError: there is no such object.
        FileExistsError: there is, and it was not to be replaced.
        PermissionError: of one object.
        OSError: one object ends before what is read of it.
        StorageError: everything else.
    """
    try:
        yield
    except FileNotFoundError as error:
        if of_bucket:
            raise StorageError(where, "there is no such bucket") from error
        raise
    except (FileExistsError, StorageError, UserError):
        raise
    except Exception as error:
        if fault := hub_fault(error):
            raise StorageError(where, fault[0], keys=fault[1]) from error
        met = _met(error)
        code = _code(met)
        denied = _is_denied(met, code)
        if of_object and denied and code not in CREDENTIALS:
            raise PermissionError(errno.EACCES, first_line(met)) from error
        if of_object and code in _BEYOND_END:
            raise OSError(errno.EINVAL, "it is shorter than it was") from error
        keys = denied or _is_about_keys(met, code)
        raise StorageError(where, first_line(met), keys=keys) from error


def _met(error: Exception) -> BaseException:
    """The error that a client met; adlfs wraps it in a less specific one."""
    if type(error) is RuntimeError and error.__cause__ is not None:
        return error.__cause__
    return error


def _code(error: BaseException) -> str:
    """The store's error code, or else its status; empty if there is neither."""
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):  # botocore
            return str(response.get("Error", {}).get("Code", ""))
        named = getattr(each, "error_code", None)  # azure
        if named:
            return str(getattr(named, "value", named))
        if type(each).__name__ == "HttpError":  # gcsfs
            return str(getattr(each, "code", ""))
    return ""


def _is_denied(error: BaseException, code: str) -> bool:
    """Return whether a valid key lacks permission; gcsfs raises a plain OSError for this."""
    forbidden = type(error) is OSError and str(error).startswith("Forbidden")
    return isinstance(error, PermissionError) or forbidden or code in _DENIED_TO_ONE


def _is_about_keys(error: BaseException, code: str) -> bool:
    named = type(error).__name__
    return (
        code in CREDENTIALS
        or code == "401"
        or (code == "400" and named != "HttpError")  # what is left where S3's answer has no body
        or "Credential" in named
        or named in ("RefreshError", "ClientAuthenticationError", "TokenRetrievalError")
    )


def copy_remote(fs: Any, source: str, target: str) -> None:
    """Copy an object within its store; wait until it exists.

    Raises:
        FileNotFoundError: there is none.
        OSError: the store gave up.
    """
    fs.cp_file(source, target)
    if hasattr(fs, "service_client"):  # Azure says yes before it has copied
        sync(fs.loop, _copied, fs, target)


async def _copied(fs: Any, path: str) -> None:
    container, name, _ = fs.split_path(path)
    async with fs.service_client.get_blob_client(container, name) as blob:
        while (found := (await blob.get_blob_properties()).copy).status == "pending":
            await asyncio.sleep(_COPY_LOOK_S)
    if found.status not in (None, "success"):
        raise OSError(f"the store did not copy it ({found.status}: {found.status_description})")


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


_GLOB = frozenset("*?[")


_SMALL = 1 << 16
"""Bytes of a file that is fetched whole: a request takes longer than they do."""


class RangeFile(io.RawIOBase):
    """A file that sends one range request per read and none ahead; a small one, one in all.

    Args:
        fetch: the bytes from a start up to an end.
        size: of the file, in bytes.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._whole: bytes | None = None

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
        data = self._part(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def _part(self, start: int, end: int) -> bytes:
        if self._size > _SMALL:
            return self._fetch(start, end)
        if self._whole is None:
            self._whole = self._fetch(0, self._size)
        return self._whole[start:end]

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
