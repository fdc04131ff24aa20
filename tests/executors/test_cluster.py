"""Several Ray nodes on this machine, which go and come while a build runs."""

from __future__ import annotations

import sys

import pytest
from building import data_bytes, run_build

from glit.errors import UserError
from glit.executors.protocols import Job, Tally


@pytest.fixture(scope="module")
def cluster():
    """A head that works at nothing, and two nodes of one core."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    running = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
    for _ in range(2):
        running.add_node(num_cpus=1, **SMALL)
    running.wait_for_nodes()
    yield running
    running.shutdown()


SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture
def executor(cluster):
    from glit.executors.on_ray import RayExecutor

    running = RayExecutor(address=cluster.address)
    yield running
    running.close()


def exchange_node(cluster):
    """One node is lost, as by a power cut; another comes."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    cluster.add_node(num_cpus=1, **SMALL)


def test_a_node_that_dies_costs_no_sample_and_no_byte(
    cluster, executor, scenes, built, tmp_path, monkeypatch
):
    """A node is lost in the middle of a stage, another comes."""
    lost = []

    class Losing:
        device = "cpu"

        def run(self, jobs):
            executor.run([self._watched(job) for job in jobs])

        def _watched(self, job):
            def done(unit, tally: Tally):
                job.on_done(unit, tally)
                if job.task.name == "propose" and not lost:
                    lost.append(job.task.name)
                    exchange_node(cluster)

            return Job(
                task=job.task, units=job.units, on_done=done, after=job.after, begin=job.begin,
                watch=job.watch, worked=job.worked,
            )  # fmt: skip

    out = tmp_path / "out"
    manifest = run_build(
        scenes / "images", out, captions=scenes / "captions.jsonl", executor=Losing(),
    )  # fmt: skip
    assert lost == ["propose"]
    assert manifest["counts"]["drops"] == {}
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
