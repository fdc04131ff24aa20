"""A lock file that allows one writer per folder; the system releases it when the holder ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from glit.errors import UserError

_TRIES = 100
"""A holder that ends takes its file and an empty folder away, perhaps just now."""


@contextlib.contextmanager
def folder_lock(folder: Path, *, beside: bool = False) -> Iterator[None]:
    """Hold the lock of a folder that a command writes to; create the folder if needed.

    The lock's file is removed afterwards, and so is a folder that was made here and stayed empty.

    Args:
        folder: to be held.
        beside: the lock lies beside the folder: for a command that makes the folder at its end.

    Raises:
        UserError: another process holds it, or it cannot be written to.
    """
    file = folder.parent / f".{folder.name}.lock" if beside else folder / ".lock"
    made = [parent for parent in file.parents if not parent.exists()]
    try:
        with locked(file, folder, doing="writing", todo="wait for it, or choose another with -o"):
            yield
    finally:
        with contextlib.suppress(OSError):  # something is in it
            for parent in made:
                parent.rmdir()


@contextlib.contextmanager
def locked(file: Path, folder: Path, *, doing: str, todo: str) -> Iterator[None]:
    """Hold a lock file that names the holder, and remove it afterwards.

    Args:
        file: is made, with its folder.
        folder: what the message says is held.
        doing: what the holder is at, for the message.
        todo: what the one who is refused can do.

    Raises: as :func:`folder_lock`.
    """
    try:
        handle = _open(file)
    except BlockingIOError as error:
        raise UserError(f"{folder}: another glit is {doing} here{_holder(file)}; {todo}") from error
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write there ({error.strerror}); choose another folder with -o"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # removed already, perhaps somebody's new one
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                file.unlink()
        os.close(handle)


def _open(file: Path) -> int:
    """The file, locked and with this process's name in it.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the file cannot be written.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
            try:
                _lock(handle, file)
                if os.path.samestat(os.fstat(handle), os.stat(file)):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"{this_process()}\n".encode(), 0)
                    return handle
            except OSError:
                os.close(handle)
                raise
            os.close(handle)  # its holder removed this file, and somebody may have made another
    raise FileNotFoundError(2, "it is removed again and again", str(file))


def _lock(handle: int, file: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        warnings.warn(
            f"{file.parent}: this file system has no locks ({error.strerror}), so nothing keeps "
            "a second glit from writing there as well",
            stacklevel=2,
        )


def this_process() -> str:
    """Describe this process for a lock file."""
    return f"pid {os.getpid()} on {socket.gethostname()}, since {time.strftime('%F %T')}"


def _holder(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            said = opened.read(200).decode(errors="replace").strip()
    except OSError:
        return ""
    return f" ({said})" if said.isprintable() and said else ""
