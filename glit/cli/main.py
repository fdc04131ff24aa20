"""``glit``: the command line with all its commands."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import typer

from glit.cli.commands import LazyGroup
from glit.errors import GlitError, MissingExtraError, MissingPackage, UserError
from glit.masking import mask_tracebacks, masked
from glit.recipes.extras import extra_with
from glit.runtime.terminal import Console
from glit.version import __version__

app = typer.Typer(
    name="glit",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Build region-grounded long-caption datasets, inspect them, and train CLIP on them.",
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OWN_CODE = Path(__file__).parents[1]


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        print(f"glit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; errors become one line and an exit code, glit's warnings one line."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    warnings.formatwarning = _formatted
    mask_tracebacks()
    try:
        _settle()
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        sys.stdout = None  # or it is flushed again at the end
        errors.print(f"glit: standard output: cannot be written ({error.strerror})")
        sys.exit(1)
    except MemoryError:
        errors.print("glit: not enough memory here; end other programs, or raise the limit")
        sys.exit(1)
    except GlitError as error:
        errors.print(f"glit: {error}", markup=False)
        sys.exit(error.exit_code)


def _settle() -> None:
    """Check the process's file name encoding and working folder, and handle SIGHUP, and what
    Slurm sends before it ends a job (SIGUSR1, SIGUSR2), as SIGTERM.

    Raises:
        UserError: file names cannot be read here, or the working folder is gone.
    """
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        raise UserError(
            f"Python reads file names as {encoding} here, which not every name is; set PYTHONUTF8=1"
        )
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UserError("the folder that this runs in is gone; change to another") from error
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_DFL:  # else nohup, or a caller's own
            signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def _formatted(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
    *,
    plain: Callable[..., str] = warnings.formatwarning,
) -> str:
    """glit's own warnings without the place in its source; those of libraries as Python has it."""
    if Path(filename).is_relative_to(_OWN_CODE):
        return f"glit: warning: {masked(str(message))}\n"
    return masked(plain(message, category, filename, lineno, line))


def _run() -> None:
    """Run the app; report a missing optional package as a :class:`MissingExtraError`."""
    try:
        app()
    except ModuleNotFoundError as error:
        module = error.name or ""
        extra = extra_with(module)
        if extra is None:
            raise
        missing = MissingPackage(package=module, extra=extra, needed_for="this command")
        raise MissingExtraError(missing) from error
