"""JSON Lines files whose first line describes the file, and that several people append to."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from glit.errors import InputError, cut
from glit.plain import as_plain, from_plain

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A kind of such files."""

    name: str
    version: int
    largest: int
    """The greatest size that is read, bytes."""
    what: str
    """The file in messages: ``the record of an audit``."""

    def header(self, about: Any) -> bytes:
        """Return the first line of a file about a dataclass."""
        said = {"format": self.name, "schema_version": self.version, **as_plain(about)}
        return (json.dumps(said) + "\n").encode()

    def begins(self, file: Path) -> bool:
        """Return whether a file begins as one of this format."""
        try:
            with file.open("rb") as stream:
                return json.dumps({"format": self.name})[1:-1].encode() in stream.readline(4096)
        except OSError:
            return False

    def read(self, file: Path, about: type[T]) -> tuple[T, list[tuple[str, bytes]]]:
        """Read a file: what its first line says, and the other lines with their places.

        A last line that was not finished, as after a full disk, is left out.

        Raises:
            InputError: it cannot be read, is too large, or is of another format or version.
        """
        try:
            if file.stat().st_size > self.largest:
                raise InputError(f"{file}: larger than {self.largest >> 20} MiB")
            first, *rest = file.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror or error})") from error
        try:
            values = json.loads(first, parse_constant=_refuse)
            if not isinstance(values, dict) or values.pop("format", "") != self.name:
                raise ValueError(f"its first line is not of {self.name!r}")
            if (version := values.pop("schema_version", None)) != self.version:
                raise ValueError(f"version {version!r}; this glit has {self.version}")
            header = from_plain(about, values)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file}: not {self.what} ({cut(str(error))})") from error
        if rest and not is_whole(rest[-1]):
            rest.pop()
        lines = [(f"{file}, line {n}", line) for n, line in enumerate(rest, start=2)]
        return header, [each for each in lines if each[1].strip()]


def is_whole(line: bytes) -> bool:
    """Return whether a last line without a line break is whole, as an editor may leave it; one
    whose writer was stopped is no JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def end_of_lines(data: bytes, *, opening: bytes = b"") -> int:
    """Return where the last whole line ends.

    Args:
        data: of a file, or of its end.
        opening: the beginning of every line of the file; a last line that begins otherwise is
            nobody's to remove.

    Raises:
        ValueError: the last line begins otherwise.
    """
    start = data.rfind(b"\n") + 1
    last = data[start:]
    if is_whole(last):
        return len(data)
    if not (last.startswith(opening) or opening.startswith(last)):
        raise ValueError("its last line is none of glit's")
    return start


def parsed(line: bytes, kind: type[T]) -> T:
    """Build a dataclass from a line.

    Raises:
        ValueError: it is none; says why.
    """
    try:
        return from_plain(kind, json.loads(line, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise ValueError(cut(str(error))) from error


def line_of(value: Any) -> bytes:
    """Return a dataclass as a line."""
    return (json.dumps(as_plain(value)) + "\n").encode()


def begin(file: Path, header: bytes) -> None:
    """Write a file that holds its first line alone.

    Raises:
        InputError: it exists, or cannot be written.
    """
    with _writing(file), file.open("xb") as stream:
        stream.write(header)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def appending(
    file: Path, *, wait: bool = True, opening: bytes = b""
) -> Iterator[Callable[[bytes], None]]:
    """Append lines to a file, one process at a time; a last line that is cut off is removed.

    Args:
        file: an existing one.
        wait: wait for another process that appends to it.
        opening: see :func:`end_of_lines`.

    Yields:
        A function that appends a line. It is on disk when that returns, and nothing is left of a
        line that cannot be written.

    Raises:
        InputError: another process appends to it, or it cannot be written.
    """
    with contextlib.ExitStack() as opened:
        with _writing(file):
            stream = opened.enter_context(file.open("r+b", buffering=0))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(f"{file}: another process writes into it; wait for it") from None
            except OSError:
                pass  # a file system without locks
            stream.seek(0)
            content = stream.read() or b""
            try:
                size = end_of_lines(content, opening=opening)
            except ValueError as error:
                raise InputError(f"{file}: {error}") from error
            stream.truncate(size)
            stream.seek(size)
            if size and not content[:size].endswith(b"\n"):
                stream.write(b"\n")

        def append(line: bytes) -> None:
            with _writing(file):
                append_line(stream, line)

        yield append


def append_line(stream: IO[bytes], line: bytes) -> None:
    """Write a line at a stream's place, on disk when this returns; of one that cannot be written
    nothing is left.

    Args:
        stream: without a buffer.
        line: with its line break.

    Raises:
        OSError: it cannot be written.
    """
    size = stream.tell()
    try:
        if stream.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(stream.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            stream.truncate(size)
            stream.seek(size)
        raise


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror or error})") from error


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no finite number")
