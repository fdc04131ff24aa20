"""All file access: local folders now, any fsspec file system by the same calls.

A :class:`Store` is a root and paths relative to it. Reads return bytes; writes are atomic: a
file that exists is complete. Local files are written beside their target, flushed to disk and
renamed; on object stores a finished upload is what makes the object appear.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from glit.errors import UserError

TEMPORARY_MARK = ".tmp-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file found by a listing."""

    path: str
    """Relative to the store's root, ``/`` separated; may hold surrogates for odd names."""
    size: int
    """Bytes; -1 when the file could not be looked at."""
    stamp: str
    """Changes when the file changes (modification time, or the object's tag)."""
    beside: tuple[str, ...] = ()
    """The same of the files beside it that a recipe reads."""


class Store:
    """Files under one root, addressed by relative paths.

    Picklable: workers get the root and open their own connection.

    Raises:
        UserError: an address of a kind that nothing installed here opens.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root)
        self._fs, self._base = _open(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (self.root,))

    @property
    def is_local(self) -> bool:
        return isinstance(self._fs, LocalFileSystem)

    def full(self, path: str) -> str:
        """The file system's own path of ``path``."""
        return f"{self._base}/{path}" if path else self._base

    def read(self, path: str) -> bytes:
        """A file's bytes.

        Raises:
            OSError: the file is missing or cannot be read.
        """
        if self.is_local:
            with open(self.full(path), "rb") as file:
                return file.read()
        data: Any = self._fs.cat_file(self.full(path))
        return data

    def open(self, path: str) -> Any:
        """A file opened for reading bytes.

        Raises:
            OSError: the file is missing or cannot be read.
        """
        return self._fs.open(self.full(path), "rb")

    def exists(self, path: str) -> bool:
        return self._fs.exists(self.full(path))

    def names(self, folder: str = "") -> set[str]:
        """Names of the finished files in a folder; empty when there is no such folder."""
        if self.is_local:
            try:
                with os.scandir(self.full(folder)) as found:
                    return {e.name for e in found if TEMPORARY_MARK not in e.name}
            except FileNotFoundError:
                return set()
        if not self._fs.exists(self.full(folder)):
            return set()
        listed = self._fs.ls(self.full(folder), detail=False)
        return {p.rsplit("/", 1)[-1] for p in listed if TEMPORARY_MARK not in p}

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder; nothing happens when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self.full(path), recursive=True)

    def move(self, source: str, target: str) -> None:
        """Rename within the store, replacing the target."""
        if self.is_local:
            os.makedirs(os.path.dirname(self.full(target)), exist_ok=True)
            os.replace(self.full(source), self.full(target))
        else:
            self._fs.mv(self.full(source), self.full(target))

    @contextlib.contextmanager
    def local_copy(self, path: str) -> Iterator[Path]:
        """A readable local path of the file: itself, or a temporary download."""
        if self.is_local:
            yield Path(self.full(path))
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / os.path.basename(path)
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
            self._fs.put_file(str(temporary), self.full(path))

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file atomically."""
        with self.atomic(path) as temporary:
            temporary.write_bytes(data)

    def sweep(self, mark: str = TEMPORARY_MARK) -> None:
        """Remove what killed writers left behind: local files with ``mark`` in their name."""
        if self.is_local and os.path.isdir(self._base):
            for leftover in Path(self._base).rglob(f"*{mark}*"):
                if leftover.is_file():
                    leftover.unlink(missing_ok=True)

    def sweep_folders(self, *folders: str) -> None:
        """Remove what killed writers left behind in these folders alone."""
        for folder in folders if self.is_local else ():
            for leftover in Path(self.full(folder)).glob(f"*{TEMPORARY_MARK}????????"):
                leftover.unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        """Free disk space, None where that has no meaning."""
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
        prefix = self._base.rstrip("/") + "/"
        found: Any = self._fs.find(self._base, detail=True)
        for path, info in found.items():
            stamp = str(info.get("ETag") or info.get("mtime") or info.get("LastModified") or "")
            yield Entry(
                path=path.removeprefix(prefix), size=int(info.get("size") or 0), stamp=stamp
            )

    def entry(self, path: str) -> Entry:
        """The entry of one file; size -1 when it cannot be looked at."""
        if self.is_local:
            return _local_entry(self.full(path), path)
        try:
            info = self._fs.info(self.full(path))
        except OSError:
            return Entry(path=path, size=-1, stamp="")
        stamp = str(info.get("ETag") or info.get("mtime") or info.get("LastModified") or "")
        return Entry(path=path, size=int(info.get("size") or 0), stamp=stamp)


def local_folder(output: str | os.PathLike[str]) -> Path:
    """A folder to write to, from the words of a user.

    Raises:
        UserError: it is an address, which ``Path`` would make a folder of that name, or a file.
    """
    if Path(output).is_file():
        raise UserError(f"{output}: cannot write there; it is a file, want a folder")
    return _here(output, "folder")


def local_file(output: str | os.PathLike[str]) -> Path:
    """A file to write, from the words of a user; one that exists is replaced.

    Raises:
        UserError: it is an address, or a folder.
    """
    if Path(output).is_dir():
        raise UserError(f"{output}: cannot write there; it is a folder, want the name of a file")
    return _here(output, "file")


def _here(output: str | os.PathLike[str], what: str) -> Path:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(output)):
        raise UserError(
            f"{output}: an address, but glit writes to local folders only so far; name a "
            f"{what}, and copy it there"
        )
    return Path(output)


def to_json(value: Any) -> bytes:
    """Stable, readable JSON."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _open(root: str) -> tuple[fsspec.AbstractFileSystem, str]:
    if "://" not in root:
        return LocalFileSystem(), os.path.abspath(root)
    try:
        fs, base = url_to_fs(root)
    except (ImportError, ValueError) as error:  # no such package, no such kind of address
        raise UserError(f"{root}: cannot be opened ({error})") from error
    return fs, str(base).rstrip("/")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _local_entry(full: str, path: str) -> Entry:
    try:
        found = os.stat(full)
    except (OSError, ValueError):  # ValueError: a NUL in the name
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
