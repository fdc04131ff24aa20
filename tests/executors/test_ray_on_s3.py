"""Builds on Ray whose images and dataset lie on an S3 server; its workers are other processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from adding import put
from building import data_bytes, run_build
from faulty_s3 import KEYS
from fsspec.config import conf

from glit.errors import StorageError
from glit.storage.store import Store

OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=2", "propose.backend=grid"]


@pytest.fixture(scope="module")
def few(scenes, tmp_path_factory) -> Path:
    return put(scenes, tmp_path_factory.mktemp("few"), *(f"{n:06d}.png" for n in range(4)))


@pytest.fixture
def executor(s3, monkeypatch):
    """Its workers find the server by the driver's environment, but the keys only by what the
    driver's program has set."""
    from glit.pipeline.executors.on_ray import RayExecutor

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    keys = {"key": KEYS["AWS_ACCESS_KEY_ID"], "secret": KEYS["AWS_SECRET_ACCESS_KEY"]}
    monkeypatch.setitem(conf, "s3", {**conf["s3"], **keys})
    running = RayExecutor(num_workers=2)
    yield running
    running.close()


@pytest.mark.engine
def test_a_build_on_ray_there_is_that_of_one_process_here(few, executor, s3, tmp_path, capfd):
    run_build(few, tmp_path / "here", overrides=OVERRIDES)
    there, output = Store(s3.url("ray/few")), s3.url("ray/dataset")
    for file in few.iterdir():
        there.write(file.name, file.read_bytes())
    s3.requests.clear()
    expired = "expired"
    with (
        s3.failing(lambda method, path: expired if method == "PUT" and "/score-" in path else ""),
        pytest.raises(StorageError, match="token has expired; renew or change the keys") as caught,
    ):
        run_build(there.root, output, overrides=OVERRIDES, executor=executor)
    assert str(caught.value).startswith(f"{output}/work/score-")
    assert "\n" not in str(caught.value)
    before = {name for name in Store(output).names("work") if name.startswith("ingest-")}
    run_build(there.root, output, overrides=OVERRIDES, executor=executor)
    assert {n for n in Store(output).names("work") if n.startswith("ingest-")} == before
    store = Store(output)
    assert {n: store.read(f"data/{n}") for n in store.names("data")} == data_bytes(
        tmp_path / "here"
    )
    assert store.read("manifest.json") == (tmp_path / "here" / "manifest.json").read_bytes()
    ingested = [p for m, p in s3.requests if m == "PUT" and "/work/ingest-" in p]
    assert len(ingested) == 2, "a chunk was done twice"
    said = capfd.readouterr()
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in said.out + said.err
