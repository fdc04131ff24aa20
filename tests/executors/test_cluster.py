"""A build on several Ray nodes of this machine, one of which is lost in the middle."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from building import data_bytes

from glit.errors import UserError
from tools.faults.cluster import ENVIRONMENT, cluster


@pytest.fixture
def two_nodes():
    with cluster(2) as running:
        yield running


@pytest.mark.engine
def test_a_node_that_is_lost_costs_no_sample_and_no_byte(
    two_nodes, scenes, built_by_mini, tmp_path
):
    out = tmp_path / "out"
    build = subprocess.Popen(
        [
            sys.executable, "-m", "glit", "build", scenes / "images", "-o", out, "-r", "mini",
            "--captions", scenes / "captions.jsonl", "--ray-address", two_nodes.address,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not list(out.glob("work/propose-*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
        if build.poll() is not None:
            break
    two_nodes.lose_oldest()
    two_nodes.add()
    said, _ = build.communicate(timeout=240)
    assert build.returncode == 0, said
    assert "24 images = 24 shipped + 0 dropped" in said
    assert data_bytes(out) == data_bytes(built_by_mini)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers there .Connection refused"),
        ("ray://127.0.0.1:10001", "want HOST:PORT of the head"),
    ],
)
def test_an_address_where_no_cluster_is(address, message):
    from glit.pipeline.executors.on_ray import RayExecutor

    with pytest.raises(UserError, match=f"--ray-address {address}: {message}"):
        RayExecutor(address=address)
