"""Run command lines of glit in this process, which needs glit and nothing else.

python tools/run_lines.py < lines.json

Reads a JSON list of lines without the word ``glit``, each a list of words; prints a JSON list of
``[exit code, what went to the terminal's error stream]``. An exception that reached the user is
code -1 with its stack trace.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback

from glit.cli.main import main


def run(words: list[str]) -> tuple[int, str]:
    """Exit code and error stream of one line."""
    sys.argv = ["glit", *words]
    errors = io.StringIO()
    output = io.TextIOWrapper(io.BytesIO())  # as a pipe: it takes bytes too
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            return code, errors.getvalue()
        except Exception:  # noqa: BLE001 - a user would see its stack trace, so it is the result
            return -1, traceback.format_exc()
    return 0, errors.getvalue()


if __name__ == "__main__":
    print(json.dumps([run(words) for words in json.load(sys.stdin)]))
