"""Options shared by several commands: their checks and parsers, and common output."""

from __future__ import annotations

import glob
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from glit.errors import InputError
from glit.runtime.limits import ALL
from glit.runtime.terminal import Console
from glit.storage.folder_lock import folder_lock

if TYPE_CHECKING:
    from glit.runtime.progress import StageProgress


def existing(value: str | None) -> str | None:
    """The path or address of an argument; asked before anything heavy is imported.

    Raises:
        InputError: it is a local path, and there is nothing.
    """
    if value and _is_missing(value):
        raise InputError(f"{value}: no such file or folder")
    return value


def existing_images(value: str) -> str:
    """The same for the images of a build.

    Raises:
        InputError: it is a local path, and there is nothing.
    """
    if _is_missing(value):
        raise InputError(
            f"{value}: no such folder; want a folder of images, a glob, a list file, or shards "
            "(.tar, .zip, .parquet)"
        )
    return value


def existing_dataset(value: str) -> str:
    """The same for a dataset.

    Raises:
        InputError: it is a local path, and there is nothing.
    """
    if _is_missing(value):
        raise InputError(f"{value}: no dataset here; there is no such folder")
    return value


def go_offline(value: bool) -> bool:
    """Forbid downloads for this process and those that it starts."""
    if value:
        os.environ["HF_HUB_OFFLINE"] = "1"
    return value


def _is_missing(value: str) -> bool:
    return not (
        "://" in value or glob.has_magic(value) or os.path.lexists(os.path.expanduser(value))
    )


def progress_bar(*, quiet: bool) -> StageProgress:
    """A progress bar on standard error; none if it is quiet."""
    from glit.runtime.progress import StageProgress

    return StageProgress(Console(stderr=True, highlight=False), quiet=quiet)


def name_next(*words: str | Path, quiet: bool) -> None:
    """Print the command that usually follows, as a shell takes it."""
    if not quiet:
        print(f"next: glit {shlex.join(map(str, words))}")


_SIZES = {"k": 10**3, "M": 10**6, "B": 10**9}


def count(given: str | float) -> int:
    """A number of the command line, such as ``10M``."""
    text = str(given)
    unit = text[-1:] if text[-1:] in _SIZES else ""
    try:
        return round(float(text.removesuffix(unit)) * _SIZES.get(unit, 1))
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text}: want a number such as 250000 or 10M") from None


def shares(given: str | float) -> float | dict[str, float]:
    """Parse ``--max-drops``: a share, ``5%`` or ``0.05``, and shares of single drop reasons.

    >>> shares("5%,no_caption=1%")
    {'all': 0.05, 'no_caption': 0.01}
    """
    found = {}
    for part in str(given).split(","):
        reason, _, text = part.rpartition("=")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            raise typer.BadParameter(f"{part}: want a share such as 5% or 0.05") from None
        if (name := reason.strip() or ALL) in found:
            raise typer.BadParameter(f"{given}: has two shares for {name}")
        found[name] = number / 100 if text.endswith("%") else number
    return found[ALL] if found.keys() == {ALL} else found


def page_of(folder: str | Path) -> str:
    """The name of a report page for a folder or address: ``runs/a`` has ``runs/a.html``.

    >>> page_of("s3://bucket/cats/")
    'cats.html'
    """
    path = str(folder).rstrip("/")
    return f"{path.rpartition('/')[2] if '://' in path else path}.html"


def hold(context: typer.Context, folder: Path) -> None:
    """Hold a folder that a command writes to until the command ends.

    Raises:
        UserError: another process holds it, or it cannot be written to.
    """
    context.with_resource(folder_lock(folder))
