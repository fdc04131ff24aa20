"""A build on several Ray nodes of this machine, one of which is lost in the middle."""

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
from pathlib import Path

import pytest
from building import data_bytes

from glit.errors import UserError

RAY = str(Path(sys.executable).with_name("ray"))
SMALL = ["--object-store-memory", "80000000", "--node-ip-address", "127.0.0.1", "--block"]
OPEN = {**os.environ, "RAY_AUTH_MODE": "disabled"}
"""Whether this machine's user has a token of Ray's or not."""


def started(*arguments):
    """A node: a ``ray start`` that ends with everything it started."""
    return subprocess.Popen(
        [RAY, "start", *arguments, *SMALL],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=OPEN,
    )


def lose(node):
    """As by a power cut."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


@pytest.fixture
def cluster():
    """The address of a head that works at nothing, and two nodes of one core."""
    # short, as sockets lie in it; not Ray's own, or others on this machine would look for the head
    folder = tempfile.mkdtemp(prefix="ray-")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = started(
        "--head", "--port", str(port), "--num-cpus", "0", "--include-dashboard", "false",
        "--temp-dir", folder,
    )  # fmt: skip
    nodes = [head]
    try:
        deadline = time.monotonic() + 120
        while not _answers(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        address = f"127.0.0.1:{port}"
        nodes += [started("--address", address, "--num-cpus", "1") for _ in range(2)]
        yield address, nodes
    finally:
        for node in reversed(nodes):
            lose(node)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.engine
def test_a_node_that_is_lost_costs_no_sample_and_no_byte(cluster, scenes, built, tmp_path):
    address, nodes = cluster
    out = tmp_path / "out"
    build = subprocess.Popen(
        [
            sys.executable, "-m", "glit", "build", scenes / "images", "-o", out, "-r", "mini",
            "--captions", scenes / "captions.jsonl", "--ray-address", address,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=OPEN,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not list(out.glob("work/propose-*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
        if build.poll() is not None:
            break
    lose(nodes[1])
    nodes.append(started("--address", address, "--num-cpus", "1"))
    said, _ = build.communicate(timeout=240)
    assert build.returncode == 0, said
    assert "24 images = 24 shipped + 0 dropped" in said
    assert data_bytes(out) == data_bytes(built)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers there .Connection refused"),
        ("ray://127.0.0.1:10001", "want HOST:PORT of the head"),
    ],
)
def test_an_address_where_no_cluster_is(address, message):
    from glit.executors.on_ray import RayExecutor

    with pytest.raises(UserError, match=f"--ray-address {address}: {message}"):
        RayExecutor(address=address)
