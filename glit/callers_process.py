"""What model libraries print, kept off the terminal while a command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from glit.extras import require


@contextlib.contextmanager
def quiet_libraries(command: str, *, extra: str) -> Iterator[None]:
    """No bars of transformers inside.

    Raises:
        MissingExtraError: the extra that the command needs is not installed.
    """
    require(extra, needed_for=command)
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield
