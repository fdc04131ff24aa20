"""The command line: a thin shell over the library. Nothing imports it."""

from __future__ import annotations

import sys


def cli() -> None:
    """Exit with one line; the command of the other program named glit calls this."""
    from glit.installation import other_program

    sys.exit(f"glit: {other_program()}")
