"""What model libraries print, kept off the terminal while a command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from glit.backends.device import require_torch
from glit.errors import MissingExtraError


@contextlib.contextmanager
def quiet_libraries(command: str) -> Iterator[None]:
    """No bars and no remarks of transformers inside.

    Raises:
        MissingExtraError: the command needs the model libraries, and they are not installed.
    """
    require_torch(command)
    try:
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtraError("transformers", extra="models", needed_for=command) from error
    logging.disable_progress_bar()
    yield
