"""Classify GPU errors: those that concern a batch, and those that end the process. No torch."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from glit.errors import RunError, first_line

_OF_A_GPU = ("CUDA error: ", "CUDA driver error: ", "Triton Error [CUDA]: ", "HIP error: ")
_OF_ITS_LIBRARIES = tuple(
    f"{library}_STATUS_{what}"
    for library in ("CUDNN", "CUBLAS")
    for what in ("INTERNAL_ERROR", "EXECUTION_FAILED", "MAPPING_ERROR", "NOT_INITIALIZED")
)
_NO_MEMORY = ("out of memory", "_ALLOC_FAILED")
_REFUSALS = (
    "invalid argument",
    "invalid configuration argument",
    "too many resources requested",
    "no kernel image",
    "_NOT_SUPPORTED",
    "_INVALID_VALUE",
)
"""A call was not accepted: nothing ran, and the next call may well succeed."""


def ruins_process(error: BaseException) -> bool:
    """Return whether a process cannot use its GPU any more after this error.

    After an illegal memory access, a failed device-side assertion and the like, every further call
    of the process fails too, whatever its input: only a fresh process helps. So say, of the error
    itself or of any that it came from:

    - ``torch.AcceleratorError``, or a ``RuntimeError`` that begins a line with "CUDA error: " (or
      with the driver's, Triton's or HIP's words for it);
    - an internal error of cuDNN or cuBLAS (``..._STATUS_INTERNAL_ERROR``, ``EXECUTION_FAILED``,
      ``MAPPING_ERROR``, ``NOT_INITIALIZED``);
    - vLLM's ``EngineDeadError``.

    Not so where the message says that memory was short, which a smaller batch mends, or that the
    call was refused (an invalid argument, no kernel for this GPU). Everything else is an error of
    its input: a ``ValueError``, a shape, ``torch.OutOfMemoryError``.
    """
    return any(map(_is_fatal, _chain(error)))


@contextlib.contextmanager
def one_line_where_the_gpu_fails(what: str, *, go_on: str) -> Iterator[None]:
    """Translate errors that end this process's use of its GPU into one-line errors.

    Args:
        what: that stopped.
        go_on: how to start it again.

    Raises:
        RunError: with the first line of the error.
    """
    try:
        yield
    except Exception as error:
        if not ruins_process(error):
            raise
        raise RunError(
            f"{what}: the GPU failed and this process cannot use it any more "
            f"({first_line(error)}); what is done is kept: {go_on}"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory was short, a device's or the machine's."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )


def free_memory() -> None:
    """Free unreferenced memory: reference cycles and torch's GPU cache."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()


def _is_fatal(error: BaseException) -> bool:
    kind, message = type(error).__name__, str(error)
    if kind == "EngineDeadError":
        return True
    if not isinstance(error, RuntimeError):
        return False
    if any(words in message for words in _NO_MEMORY + _REFUSALS):
        return False
    return (
        kind == "AcceleratorError"
        or any(line.startswith(_OF_A_GPU) for line in message.splitlines())
        or any(words in message for words in _OF_ITS_LIBRARIES)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
