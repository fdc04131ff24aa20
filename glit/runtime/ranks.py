"""Rank and number of the processes of one run, as torchrun states them."""

from __future__ import annotations

import os

from glit.errors import UserError

_MPI_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def rank() -> int:
    """This process's number in its run; 0 if it was started alone."""
    return _number("RANK", 0)


def num_launched() -> int:
    """Processes that the launcher says it started for the run; 1 if there was no launcher.

    Raises:
        UserError: an MPI launcher started several, which name each other differently.
    """
    for name in _MPI_SIZES:
        if "WORLD_SIZE" not in os.environ and _number(name, 1) > 1:
            raise UserError(
                f"{name}={os.environ[name]}: MPI started several processes; start them with "
                "torchrun"
            )
    return _number("WORLD_SIZE", 1)


def num_on_this_machine() -> int:
    """Processes of the run on this machine, this one included."""
    return max(1, _number("LOCAL_WORLD_SIZE", 1))


def _number(name: str, default: int) -> int:
    said = os.environ.get(name, "")
    if not said:
        return default
    if not said.isdecimal():
        raise UserError(f"{name}={said}: want a number; unset it, or start with torchrun")
    return int(said)
