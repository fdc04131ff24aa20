"""Decode and fit images in processes of their own.

Threads of the training process would share its interpreter lock: each sample takes it several
times, and waits every time for whoever holds it (docs/decisions/loader-threads.md).

A process is a new interpreter at the other end of a socket. It imports torch, for its resize, and
never touches a GPU. Files come through the socket, and pixels go back through memory that has no
name and so is gone with the processes. It ends when the socket closes, even if the training
process is killed.
"""

from __future__ import annotations

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

from glit.clip import ImageFit
from glit.errors import GlitError, RunError
from glit.training.sample import EncodedImage

IS_SUPPORTED = hasattr(os, "memfd_create")
"""True on Linux."""


class Request(NamedTuple):
    """Images for a process to decode; of each it writes the whole one, then its crops."""

    images: Sequence[EncodedImage]
    whole: bool
    """False if only the crops are needed."""
    side: int
    """Of the model's input square, pixels."""
    fit: ImageFit


class Failure(NamedTuple):
    """The first image of a request that cannot be decoded."""

    number: int
    """Its place in the request, from 0."""
    message: str


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection
    memory: int
    """File of the memory that it writes pixels to."""


class DecodeProcesses:
    """Processes that decode; each does one request at a time. Safe to use from threads.

    Each imports torch, which takes 1.5 s; nobody waits for that before the first request.

    Args:
        number: processes, 1 or more.
    """

    def __init__(self, number: int) -> None:
        started = [_start() for _ in range(number)]
        self.pids = [each.process.pid for each in started]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for each in started:
            self._idle.put(each)
        self.close = weakref.finalize(self, _end, started)
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
                copied = os.preadv(idle.memory, out, 0)
                assert copied == sum(each.nbytes for each in out)
            return failure
        except (EOFError, OSError) as error:
            raise RunError(
                "a process that decodes images died; what it said stands above; if it said "
                "nothing, memory may be short: set train.num_workers to fewer"
            ) from error
        finally:
            self._idle.put(idle)


def _start() -> _Process:
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("glit-pixels")
    with theirs:
        files = theirs.fileno(), memory
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"import {__name__} as module; module.serve{files}"],
            stdin=subprocess.DEVNULL,
            pass_fds=files,
            start_new_session=True,  # Ctrl-C reaches the training process alone
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    return _Process(process, Connection(ours.detach()), memory)


def _end(started: list[_Process]) -> None:
    for each in started:
        each.connection.close()
        os.close(each.memory)
        each.process.kill()
    for each in started:
        each.process.wait()


def serve(socket_file: int, memory_file: int) -> None:
    """Do what comes from a socket until it closes: the whole life of a process."""
    torch.set_num_threads(1)  # the processes share the cores
    pixels = torch.empty((0,), dtype=torch.uint8)
    with Connection(socket_file) as connection:
        while True:
            try:
                request: Request = connection.recv()
                num_bytes = _num_squares(request) * 3 * request.side**2
                if num_bytes > len(pixels):
                    os.ftruncate(memory_file, num_bytes)
                    memory: Any = mmap.mmap(memory_file, num_bytes)
                    pixels = torch.frombuffer(memory, dtype=torch.uint8)
                connection.send(_write(request, pixels[:num_bytes]))
            except (EOFError, ConnectionError):
                return


def _num_squares(request: Request) -> int:
    return sum(request.whole + len(each.boxes) for each in request.images)


def _write(request: Request, pixels: torch.Tensor) -> Failure | None:
    squares, at = pixels.view(-1, 3, request.side, request.side), 0
    for index, image in enumerate(request.images):
        whole = squares[at] if request.whole else None
        start = at + request.whole
        at = start + len(image.boxes)
        try:
            image.write_pixels(whole, squares[start:at], fit=request.fit)
        except GlitError as error:
            return Failure(index, str(error))
    return None
