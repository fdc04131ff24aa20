"""A Ray cluster of several nodes on this machine, whose nodes can be lost as by a power cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

RAY = str(Path(sys.executable).with_name("ray"))
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled"}
"""Whether this machine's user has a token of Ray's or not."""
_SMALL = ("--object-store-memory", "80000000", "--node-ip-address", "127.0.0.1", "--block")
_STARTS_WITHIN_S = 120.0


@dataclass
class Cluster:
    """A head that works at nothing, and nodes of one core each."""

    address: str
    environment: Mapping[str, str]
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The oldest first."""

    def add(self) -> None:
        """Start one more node."""
        self.nodes.append(
            _started("--address", self.address, "--num-cpus", "1", env=self.environment)
        )

    def lose_oldest(self) -> None:
        """Kill a node and everything on it."""
        _lose(self.nodes.pop(0))


@contextlib.contextmanager
def cluster(num_nodes: int, *, environment: Mapping[str, str] = ENVIRONMENT) -> Iterator[Cluster]:
    """A running cluster; its processes are gone afterwards.

    Args:
        num_nodes: beside the head.
        environment: of the head and the nodes.
    """
    # short, as sockets lie in it; not Ray's own, or others on this machine would look for the head
    folder = tempfile.mkdtemp(prefix="ray-")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = _started(
        "--head", "--port", str(port), "--num-cpus", "0", "--include-dashboard", "false",
        "--temp-dir", folder, env=environment,
    )  # fmt: skip
    found = Cluster(address=f"127.0.0.1:{port}", environment=environment)
    try:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not _answers(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        for _ in range(num_nodes):
            found.add()
        yield found
    finally:
        for node in (*found.nodes, head):
            _lose(node)
        shutil.rmtree(folder, ignore_errors=True)


def _started(*arguments: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A ``ray start`` that ends with everything it started."""
    return subprocess.Popen(
        [RAY, "start", *arguments, *_SMALL],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=dict(env),
    )


def _lose(node: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
