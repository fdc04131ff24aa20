"""Check a user's output path: a folder, a file, or an address."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from glit.errors import InputError, UserError
from glit.storage.folder_lock import folder_lock
from glit.storage.store import tidy


def output_folder(output: str | os.PathLike[str]) -> str:
    """Check a user's output path for a dataset: a folder or an address.

    Raises:
        UserError: it is a file, or an address of no bucket.
    """
    words = tidy(output)
    if "://" not in words:
        return str(local_folder(words))
    if words.lower().startswith("hf://"):
        raise UserError(f"{output}: the Hub is only read; write to a folder, then use glit push")
    if not words.partition("://")[2].strip("/"):
        raise UserError(f"{output}: an address without a bucket; want s3://BUCKET/FOLDER")
    return words


def local_folder(output: str | os.PathLike[str]) -> Path:
    """Check a user's output path that must be a local folder.

    Raises:
        UserError: it is an address, which ``Path`` would make a folder of that name, or a file.
    """
    if Path(output).is_file():
        raise UserError(f"{output}: cannot write there; it is a file, want a folder")
    return _here(output, "folder")


def local_file(output: str | os.PathLike[str]) -> Path:
    """Check a user's output path that must be a local file; an existing file is replaced.

    Raises:
        UserError: it is an address, or a folder.
    """
    if Path(output).is_dir():
        raise UserError(f"{output}: cannot write there; it is a folder, want the name of a file")
    return _here(output, "file")


@contextlib.contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Write into a temporary folder and rename it when done; remove it on an error.

    Raises:
        InputError: there is one of that name, or it cannot be written.
        UserError: another process is writing it.
    """
    with folder_lock(output, beside=True):
        if output.exists():
            raise InputError(f"-o {output}: exists already; choose another folder or remove it")
        partial = output.with_name(f".{output.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            yield partial
            os.replace(partial, output)
        except OSError as error:
            if not _is_of_output(error, partial, output):
                raise InputError(
                    f"{error.filename or 'a file'}: cannot be read ({error.strerror or error})"
                ) from error
            raise InputError(
                f"-o {output}: cannot write there ({error.strerror or error})"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _is_of_output(error: OSError, partial: Path, output: Path) -> bool:
    """Return whether an error is one of writing: it names the output or a folder above it, or, as
    those of a full disk do, no file."""
    if error.filename is None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return True
    named = Path(os.fsdecode(error.filename))
    return named.is_relative_to(partial) or partial.is_relative_to(named) or named == output


def _here(output: str | os.PathLike[str], what: str) -> Path:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(output)):
        if os.fspath(output).lower().startswith("hf:/"):
            raise UserError(
                f"{output}: the Hub is only read; write to a {what}, then use glit push"
            )
        raise UserError(
            f"{output}: an address, but this command writes to local folders only (glit build "
            f"writes to addresses); want a local {what}: write it here and upload it afterwards"
        )
    return Path(output)
