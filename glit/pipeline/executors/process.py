"""The process that a worker runs in: its threads, its memory, what its libraries print."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

from glit.runtime.process_state import kept_random_states, without_bars

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGE_BYTES = 1 << 30, 1 << 25
"""Thresholds of malloc; older glibc refuses an mmap threshold above the second."""


def prepare_own_process(*, for_model: bool) -> None:
    """Set up a process that glit started; nothing is put back, so never in a caller's process.

    Without a model torch is not needed, whose import alone takes seconds.
    """
    keep_freed_memory()
    if for_model:
        _one_quiet_thread()


@contextlib.contextmanager
def borrowed_process(*, for_model: bool) -> Iterator[None]:
    """The same within the block, in a process that belongs to the caller.

    Threads, random states, what libraries print and the environment are afterwards as they were.
    What malloc keeps is left alone: it can be set, but neither read nor put back.
    """
    environment = dict(os.environ)
    undo = _one_quiet_thread() if for_model else contextlib.ExitStack()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        undo.close()


def _one_quiet_thread() -> contextlib.ExitStack:
    """Set one thread for a model on a CPU: workers share the cores, and sums keep their order.

    Returns:
        What puts everything back when it is closed.
    """
    undo = contextlib.ExitStack()
    try:
        import torch
        from transformers.utils import logging
    except ImportError:
        return undo
    undo.callback(torch.set_num_threads, torch.get_num_threads())
    undo.callback(logging.set_verbosity, logging.get_verbosity())
    undo.enter_context(kept_random_states())
    undo.enter_context(without_bars())
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    return undo


def keep_freed_memory() -> None:
    """Let glibc give tensors the memory it had before instead of asking the kernel each time.

    A model on a CPU frees and allocates the same megabytes in every layer; fetching them as fresh
    pages costs a tenth to a sixth of its time. The peak stays what it was.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        # the second alone would do harm: either ends glibc's own adjusting of both
        if any(mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGE_BYTES):
            mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES[0])
