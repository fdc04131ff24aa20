"""Decode and fit images in processes of their own.

Threads of the training process would share its interpreter lock: each sample takes it several
times, and waits every time for whoever holds it (docs/decisions/loader-threads.md).

A process is a new interpreter at the other end of a socket. It imports torch, for its resize, and
never touches a GPU. Files come through the socket, and pixels go back through memory that has no
name and so is gone with the processes. It ends when the socket closes, even if the training
process is killed.
"""

from __future__ import annotations

import gc
import mmap
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from glit.errors import GlitError, RunError
from glit.models.clip.image_fit import ImageFit
from glit.training.sample import EncodedImage

IS_SUPPORTED = hasattr(os, "memfd_create")
"""True where memory can be a file without a name, which is on Linux."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The processes share the cores; and what forks must have no other thread."""


class Request(NamedTuple):
    """Images for a process to decode; of each it writes the whole one, then its crops."""

    images: Sequence[EncodedImage]
    whole: bool
    """False if only the crops are needed."""
    side: int
    """Side of the model's input square, pixels."""
    fit: ImageFit


class Failure(NamedTuple):
    """The first image of a request that cannot be decoded."""

    number: int
    """Its place in the request, from 0."""
    message: str


class _Process(NamedTuple):
    """One process, as the trainer sees it."""

    connection: Connection
    memory: int
    """File of the memory that it writes pixels to."""


class DecodeProcesses:
    """Processes that decode; each does one request at a time. Safe to use from threads.

    They are forks of one that has imported torch, for 1.5 s, and done nothing else. Nobody waits
    for that before the first request.

    Args:
        number: processes, 1 or more.

    Raises:
        OSError: the system gives no such memory, or no process.
    """

    def __init__(self, number: int) -> None:
        memories = [os.memfd_create("glit-pixels") for _ in range(number)]
        pairs = [socket.socketpair() for _ in range(number)]
        files = [(theirs.fileno(), each) for (_, theirs), each in zip(pairs, memories, strict=True)]
        first = subprocess.Popen(
            [sys.executable, "-P", "-c", f"import {__name__} as module; module.serve({files})"],
            stdin=subprocess.DEVNULL,
            pass_fds=[file for pair in files for file in pair],
            start_new_session=True,  # Ctrl-C reaches the training process alone
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.pid = first.pid
        """Process id of the first; also the process group of all."""
        started: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for (ours, theirs), (_, memory) in zip(pairs, files, strict=True):
            theirs.close()
            started.append(_Process(Connection(ours.detach()), memory))
            self._idle.put(started[-1])
        self.close = weakref.finalize(self, _end, first, started)
        """End them; happens too when the object is lost or this process ends."""

    def decode(self, request: Request, out: Sequence[memoryview]) -> Failure | None:
        """Decode some images; return the first failure, or None.

        Args:
            request: the images.
            out: writable memory for their pixels, in the order of the request.

        Raises:
            RunError: the process died.
        """
        idle = self._idle.get()
        try:
            idle.connection.send(request)
            failure = idle.connection.recv()
            if failure is None:  # in one call, which gives the interpreter lock away once
                copied, wanted = os.preadv(idle.memory, out, 0), sum(e.nbytes for e in out)
                if copied != wanted:
                    raise OSError(f"{copied} bytes of {wanted} were copied")
            return failure
        except (EOFError, OSError) as error:
            raise RunError(
                "a process that decodes images died; what it said stands above; if it said "
                "nothing, memory may be short: set train.num_workers to fewer"
            ) from error
        finally:
            self._idle.put(idle)


def _end(first: subprocess.Popen[bytes], started: list[_Process]) -> None:
    for each in started:
        each.connection.close()
        os.close(each.memory)
    first.wait()


def serve(files: list[tuple[int, int]]) -> None:
    """Fork a process for every pair of a socket and a memory, and wait until all have ended.

    No process takes apart what it imported, which would take each half a second.
    """
    gc.freeze()  # or each would copy what the collector looks through
    own = None
    for each in files:
        if not os.fork():
            own = each
            break
    for each in files:
        if each != own:  # else nobody would see that another has died
            os.close(each[0])
            os.close(each[1])
    if own is not None:
        _serve_one(*own)
    else:
        for _ in files:
            os.wait()
    os._exit(0)


def _serve_one(socket_file: int, memory_file: int) -> None:
    """Do what comes from a socket until it closes."""
    pixels = torch.empty((0,), dtype=torch.uint8)
    with Connection(socket_file) as connection:
        while True:
            try:
                request: Request = connection.recv()
                num_squares = sum(request.whole + len(each.boxes) for each in request.images)
                num_bytes = num_squares * 3 * request.side**2
                if num_bytes > len(pixels):
                    os.ftruncate(memory_file, num_bytes)
                    memory: Any = mmap.mmap(memory_file, num_bytes)
                    pixels = torch.frombuffer(memory, dtype=torch.uint8)
                squares = pixels[:num_bytes].view(num_squares, 3, request.side, request.side)
                connection.send(_write(request, squares))
            except (EOFError, ConnectionError):
                return


def _write(request: Request, squares: UInt8[Tensor, "n 3 side side"]) -> Failure | None:
    at = 0
    for index, image in enumerate(request.images):
        whole = squares[at] if request.whole else None
        start = at + request.whole
        at = start + len(image.boxes)
        try:
            image.write_pixels(whole, squares[start:at], fit=request.fit)
        except GlitError as error:
            return Failure(index, str(error))
    return None
