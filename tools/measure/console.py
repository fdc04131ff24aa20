"""What a measurement tells on the terminal: what it does, and an error in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from glit.errors import GlitError


def say(text: str) -> None:
    """Print a line on the error stream."""
    print(text, file=sys.stderr, flush=True)


def ended(main: Callable[[], None]) -> None:
    """Run a command; an error of glit becomes one line and its exit code."""
    try:
        main()
    except GlitError as error:
        say(str(error))
        sys.exit(error.exit_code)
