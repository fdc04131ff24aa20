"""Translate GPU failures, lack of memory and full disks into one-line errors."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from glit.errors import RunError, first_line
from glit.runtime.gpu_errors import is_out_of_memory, one_line_where_the_gpu_fails

_GO_ON = "go on from the last checkpoint with --resume, or start again if there is none yet"
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextlib.contextmanager
def one_line_where_a_run_ends(run: Path) -> Iterator[None]:
    """Translate errors of the GPU and of the run's disk into one-line errors.

    Raises:
        RunError: the GPU failed, memory was short, or the log or a tracker could not be written.
    """
    try:
        with one_line_where_the_gpu_fails(f"training {run}", go_on=_GO_ON):
            yield
    except OSError as error:
        if error.errno not in _OF_A_DISK:
            raise
        raise RunError(
            f"training {run}: the disk takes no more ({error.strerror}); free some space, then "
            f"{_GO_ON}"
        ) from error
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(
            f"training {run}: memory was short ({first_line(error)}); start a new "
            "run with train.micro_batch_size, which gives the same gradients, or with "
            "train.gradient_checkpointing"
        ) from error
