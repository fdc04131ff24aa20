"""All file access: local folders and fsspec file systems with the same methods.

A :class:`Store` is a root and paths relative to it. Reads return bytes; writes are atomic: a
file that exists is complete. Local files are written beside their target, flushed to disk and
renamed; on object stores a finished upload is what makes the object appear. What goes wrong on
the way to a store is a :class:`glit.errors.StorageError` (:mod:`glit.storage.remote`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from glit.storage.remote import (
    RangeFile,
    copy_remote,
    exists_remote,
    open_remote,
    own_name,
    remove_remote,
    translate_storage_errors,
)
from glit.storage.remote_pages import stamp_of, walk_remote

TEMPORARY_MARK = ".tmp-"


class Entry(NamedTuple):
    """A file in a listing; a listing may have ten million."""

    path: str
    """Relative to the store's root, ``/`` separated; may hold surrogates for odd names."""
    size: int
    """Bytes; -1 when the file could not be looked at, or is a pipe, a socket or a device."""
    stamp: str
    """Changes when the file changes (modification time, or the object's tag)."""
    role: int = 0
    """0 is an input; other numbers are the kinds of files beside inputs that a recipe reads."""


class Store:
    """Files under one root, addressed by relative paths.

    Picklable: workers get the root and open their own connection.

    Raises:
        UserError: an address of a kind that nothing installed here opens.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = tidy(root)
        self._fs, self._base = _open(self.root)
        self.is_local = isinstance(self._fs, LocalFileSystem)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (self.root,))

    @property
    def name(self) -> str:
        """Name of the root: the last part of its path or address."""
        return self._base.rstrip("/").rpartition("/")[2]

    def below(self, folder: str) -> Store:
        """The store of a subfolder."""
        return Store(f"{self.root}/{folder}")

    def full(self, path: str) -> str:
        """The path of ``path`` in the file system.

        Raises:
            FileNotFoundError: the client of the store cannot ask for such a name.
        """
        if not path:
            return self._base
        full = f"{self._base}/{path}"
        return full if self.is_local else own_name(self._fs, full)

    def address(self, path: str) -> str:
        """The name of ``path`` for messages."""
        return f"{self.root}/{path}" if path else self.root

    def read(self, path: str) -> bytes:
        """A file's bytes.

        Raises:
            OSError: the file is missing or cannot be read.
            StorageError: the store cannot be reached.
        """
        if self.is_local:
            with _open_local(self.full(path)) as file:
                return file.read() or b""
        with translate_storage_errors(self.address(path), of_object=True):
            data: Any = self._fs.cat_file(self.full(path))
            return data

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """A file's bytes from ``start`` up to ``end``; fewer where it is shorter.

        Raises:
            OSError: the file is missing or cannot be read.
            StorageError: the store cannot be reached.
        """
        if self.is_local:
            with _open_local(self.full(path)) as file:
                file.seek(start)
                return file.read(end - start)
        with translate_storage_errors(self.address(path), of_object=True):
            data: Any = self._fs.cat_file(self.full(path), start=start, end=end)
            return data

    def open(self, path: str) -> Any:
        """Open a file for reading bytes with random access.

        Raises:
            OSError: the file is missing or cannot be read.
            StorageError: the store cannot be reached.
        """
        if self.is_local:
            return _open_local(self.full(path))
        with translate_storage_errors(self.address(path), of_object=True):
            info: Any = self._fs.info(self.full(path))
        return RangeFile(lambda start, end: self.read_range(path, start, end), int(info["size"]))

    def for_arrow(self, path: str) -> Any:
        """The argument for pyarrow: a local path, or an open file."""
        return self.full(path) if self.is_local else self.open(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder; False for a pipe or a device."""
        if self.is_local:
            return os.path.isfile(self.full(path)) or os.path.isdir(self.full(path))
        with translate_storage_errors(self.address(path)):
            return exists_remote(self._fs, self.full(path))

    def modified(self, path: str) -> datetime:
        """When a file was written, by the clock of the store.

        Raises:
            FileNotFoundError: there is none.
        """
        with translate_storage_errors(self.address(path)):
            found: Any = self._fs.modified(self.full(path))
            return found

    def names(self, folder: str = "") -> set[str]:
        """Names of the finished files in a folder; empty when there is no such folder."""
        try:
            if self.is_local:
                with os.scandir(self.full(folder)) as found:
                    return {e.name for e in found if TEMPORARY_MARK not in e.name}
            with translate_storage_errors(self.address(folder)):
                listed = self._fs.ls(self.full(folder), detail=False)
        except FileNotFoundError:
            return set()
        names = {path.rsplit("/", 1)[-1] for path in listed}
        return {name for name in names if TEMPORARY_MARK not in name}

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder; nothing happens when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_local:
                _remove_local(self.full(path))
                return
            with translate_storage_errors(self.address(path)):
                remove_remote(self._fs, self.full(path))

    def move(self, source: str, target: str) -> None:
        """Rename within the store, replacing the target; object stores copy, then remove."""
        if self.is_local:
            os.makedirs(os.path.dirname(self.full(target)), exist_ok=True)
            os.replace(self.full(source), self.full(target))
            return
        with translate_storage_errors(self.address(source)):
            copy_remote(self._fs, self.full(source), self.full(target))
            self._fs.rm_file(self.full(source))

    @contextlib.contextmanager
    def local_copy(self, path: str) -> Iterator[Path]:
        """A readable local path of the file: itself, or a temporary download."""
        if self.is_local:
            yield Path(self.full(path))
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / os.path.basename(path)
            with translate_storage_errors(self.address(path), of_object=True):
                self._fs.get_file(self.full(path), str(copy))
            yield copy

    @contextlib.contextmanager
    def atomic(self, path: str) -> Iterator[Path]:
        """A local path to write to; on a clean exit the file appears under ``path``, whole.

        On an exception nothing appears and the temporary file is removed.
        """
        if self.is_local:
            target = Path(self.full(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f"{target.name}{TEMPORARY_MARK}{uuid.uuid4().hex[:8]}")
            try:
                yield temporary
                _flush(temporary)
                os.replace(temporary, target)
                _flush(target.parent)
            finally:
                temporary.unlink(missing_ok=True)
            return
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / os.path.basename(path)
            yield temporary
            full = self.full(path)
            with translate_storage_errors(self.address(path), of_bucket=True):
                self._fs.put_file(str(temporary), full)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file atomically."""
        if self.is_local:
            with self.atomic(path) as temporary:
                temporary.write_bytes(data)
            return
        full = self.full(path)
        with translate_storage_errors(self.address(path), of_bucket=True):
            self._fs.pipe_file(full, data)

    def create(self, path: str, data: bytes) -> None:
        """Write a whole file if there is none; of several writers one succeeds.

        Raises:
            FileExistsError: there is one.
        """
        if self.is_local:
            os.makedirs(os.path.dirname(self.full(path)), exist_ok=True)
            with open(self.full(path), "xb") as file:
                file.write(data)
            return
        full = self.full(path)
        with translate_storage_errors(self.address(path), of_bucket=True):
            self._fs.pipe_file(full, data, mode="create")

    def sweep(self, mark: str = TEMPORARY_MARK) -> None:
        """Remove leftovers of killed writers: files with ``mark`` in their name.

        An object store has no files that are half written.
        """
        if not self.is_local:
            for entry in self.walk() if mark != TEMPORARY_MARK else ():
                if mark in entry.path:
                    self.remove(entry.path)
        elif os.path.isdir(self._base):
            for leftover in Path(self._base).rglob(f"*{mark}*"):
                if leftover.is_file():
                    leftover.unlink(missing_ok=True)

    def sweep_folders(self, *folders: str) -> None:
        """Remove leftovers of killed writers in these folders only."""
        for folder in folders if self.is_local else ():
            for leftover in Path(self.full(folder)).glob(f"*{TEMPORARY_MARK}????????"):
                leftover.unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        """Free disk space; None for an object store."""
        if not self.is_local:
            return None
        folder = Path(self._base)
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def walk(self) -> Iterator[Entry]:
        """Every file below the root, in no particular order; symlink loops are left once seen."""
        if self.is_local:
            yield from _walk_local(self._base)
            return
        for path, size, stamp in walk_remote(self._fs, self._base, self.root):
            yield Entry(path=path, size=size, stamp=stamp)

    def entry(self, path: str) -> Entry:
        """The entry of one file; size -1 when it cannot be looked at."""
        if self.is_local:
            return _local_entry(f"{self._base}/{path}", path)
        try:
            with translate_storage_errors(self.address(path), of_object=True):
                info: Any = self._fs.info(self.full(path))
        except OSError:
            return Entry(path=path, size=-1, stamp="")
        return Entry(path=path, size=int(info.get("size") or 0), stamp=stamp_of(info))


def tidy(root: str | os.PathLike[str]) -> str:
    """A root without slashes at its end."""
    words = os.fspath(root)
    return words.rstrip("/") if "://" in words else words


def inside(path: str) -> str:
    """A path from a file of somebody else's, if it stays below the root it is relative to.

    >>> inside("a/b.jpg")
    'a/b.jpg'

    Raises:
        PermissionError: it is absolute, leads upwards, or holds a null byte.
    """
    if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise PermissionError(errno.EACCES, "leads out of the folder", path)
    return path


def absolute(path: str) -> str:
    """Make a local path absolute; return an address unchanged."""
    return path if "://" in path else os.path.abspath(path)


def to_json(value: Any) -> bytes:
    """Stable, readable JSON."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _open(root: str) -> tuple[fsspec.AbstractFileSystem, str]:
    if "://" not in root:
        return LocalFileSystem(), os.path.abspath(root)
    return open_remote(root)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_local(full: str) -> None:
    """A file or a whole folder, even one that a shell stands in; of a link to a folder, what is in
    there."""
    if not os.path.isdir(full):
        os.remove(full)
    elif not os.path.islink(full):
        shutil.rmtree(full)
    else:
        for name in os.listdir(full):
            _remove_local(f"{full}/{name}")


def _open_local(full: str) -> BufferedReader:
    """Open a regular file for reading; a pipe would wait for its writer, a device may never end.

    Raises:
        OSError: there is none, or it is something else.
    """
    file = open(full, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller's to close
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file (a pipe, a socket or a device)", full)
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _local_entry(full: str, path: str) -> Entry:
    try:
        found = os.stat(full)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return Entry(path=path, size=-1, stamp="")
    if not stat.S_ISREG(found.st_mode):
        return Entry(path=path, size=-1, stamp="")
    return Entry(path=path, size=found.st_size, stamp=str(found.st_mtime_ns))


def _walk_local(root: str) -> Iterator[Entry]:
    """Depth first; a linked folder that is its own ancestor is not entered again."""
    stack: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(root, "", frozenset())]
    while stack:
        folder, relative, ancestors = stack.pop()
        try:
            identity = os.stat(folder)
            found = list(os.scandir(folder))
        except OSError:
            yield Entry(path=relative or "./", size=-1, stamp="")
            continue
        here = (identity.st_dev, identity.st_ino)
        if here in ancestors:
            continue
        for item in found:
            path = relative + item.name
            try:
                if item.is_dir():
                    stack.append((item.path, path + "/", ancestors | {here}))
                    continue
            except OSError:
                yield Entry(path=path, size=-1, stamp="")
                continue
            yield _local_entry(item.path, path)
