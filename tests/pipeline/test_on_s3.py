"""Builds whose images, captions, work folder and dataset lie on an S3 server, and its faults."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import boto3
import pytest
from adding import put
from building import Counting, data_bytes, quiet, run_build
from faulty_proxy import times
from faulty_s3 import KEYS
from fsspec.config import conf

import glit
from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import GlitError, StorageError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.pipeline.work import build_lock as one_build
from glit.storage.store import Store

NUM = 4


@pytest.fixture(scope="module")
def few(scenes, tmp_path_factory) -> Path:
    """Some scenes, with captions beside."""
    return put(scenes, tmp_path_factory.mktemp("few"), *(f"{n:06d}.png" for n in range(NUM)))


OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=2", "propose.backend=grid"]


@pytest.fixture(scope="module")
def here(few, tmp_path_factory) -> Path:
    """The dataset as a local build makes it."""
    output = tmp_path_factory.mktemp("here") / "dataset"
    run_build(few, output, overrides=OVERRIDES)
    return output


@pytest.fixture(scope="module")
def there(few, s3_server) -> str:
    """Address of the same images."""
    store = Store(s3_server.url("few"))
    for file in few.iterdir():
        store.write(file.name, file.read_bytes())
    return store.root


def remote_bytes(dataset: str) -> dict[str, bytes]:
    store = Store(dataset)
    return {name: store.read(f"data/{name}") for name in sorted(store.names("data"))}


@pytest.fixture(scope="module")
def built_there(there, s3_server) -> str:
    """A dataset on the server, of images on it; not to be written into."""
    output = s3_server.url("built")
    run_build(there, output, overrides=OVERRIDES)
    return output


def test_a_build_there_has_the_bytes_of_one_here(here, there, built_there, s3):
    assert remote_bytes(built_there) == data_bytes(here)
    assert Store(built_there).read("manifest.json") == (here / "manifest.json").read_bytes()
    assert list(verify(built_there)) == []
    assert status(built_there)["complete"]
    before = Store(built_there).read("manifest.json")
    again = Counting()
    run_build(there, built_there, overrides=OVERRIDES, executor=again)
    assert again.done == {}
    assert Store(built_there).read("manifest.json") == before


def test_a_dataset_there_is_read_and_queried_in_place(here, built_there, s3):
    local, remote = Dataset(here), Dataset(built_there)
    assert [row.caption for row in remote.rows()] == [row.caption for row in local.rows()]
    assert remote[3].encoded() == local[3].encoded()
    sql = "SELECT source_path, count(*) FROM pairs GROUP BY 1 ORDER BY 1"
    assert query(built_there, sql).fetchall() == query(str(here), sql).fetchall()
    s3.requests.clear()
    with pytest.raises(UserError, match="Permission Error"):
        query(built_there, f"SELECT * FROM read_parquet('{built_there}/work/listing.parquet')")


@pytest.mark.slow
def test_a_part_of_a_dataset_there_is_that_of_one_here(here, built_there, s3, tmp_path):
    for name, dataset in (("here", here), ("there", built_there)):
        for part in glit.split(dataset, tmp_path / name, {"a": 0.5, "b": 0.5}).values():
            assert glit.verify(part.path) == []
        glit.merge([dataset, tmp_path / name / "a"], tmp_path / f"{name}-merged")
    assert data_bytes(tmp_path / "here" / "a") == data_bytes(tmp_path / "there" / "a")
    # but for the name of each, and its manifest's hash
    merged = [glit.open_dataset(tmp_path / f"{n}-merged").table() for n in ("here", "there")]
    assert merged[0].drop_columns(["origin"]).equals(merged[1].drop_columns(["origin"]))


@pytest.fixture
def impatient(s3, monkeypatch):
    """The client waits half a second for an answer, which is all that a user has set."""
    monkeypatch.setitem(conf, "s3", {"config_kwargs": {"read_timeout": 0.5}})
    return s3


@pytest.mark.slow
def test_late_silent_broken_and_cut_answers_are_asked_again(here, there, impatient):
    s3 = impatient
    output = s3.url("unlucky")
    left = {
        ("PUT", "broken"): 2, ("PUT", "cut"): 2, ("PUT", "silent"): 1, ("PUT", "late"): 1,
        ("GET", "cut answer"): 2, ("GET", "broken"): 1, ("GET", "silent"): 1, ("GET", "late"): 1,
    }  # fmt: skip
    wanted = {name for _, name in left}
    seen = {"PUT": 0, "GET": 0}

    def now_and_then(method: str, path: str) -> str:
        if "unlucky" not in path or method not in seen:
            return ""
        seen[method] += 1
        kinds = [name for (found, name), number in left.items() if found == method and number]
        if seen[method] % 4 or not kinds:
            return ""
        left[method, kinds[0]] -= 1
        return kinds[0]

    with s3.failing(now_and_then):
        run_build(there, output, overrides=OVERRIDES)
    assert set(s3.faults) == wanted
    assert remote_bytes(output) == data_bytes(here)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "reset"])
def test_bursts_of_refusals_and_resets_are_sat_out(here, there, s3, monkeypatch, fault):
    """Every 25th request is the first of two that are refused, whatever it asks for."""
    monkeypatch.delitem(conf, "s3")  # with the retries that users have
    output, asked = s3.url(f"bursts-{fault}"), []

    def burst(method: str, path: str) -> str:
        asked.append(path)
        return fault if len(asked) % 25 < 2 else ""

    with s3.failing(burst):
        run_build(there, output, overrides=OVERRIDES)
    assert s3.faults.count(fault) > 10
    assert remote_bytes(output) == data_bytes(here)


@pytest.mark.slow
def test_a_bucket_that_is_deleted_in_the_middle_is_one_line_and_no_drop(here, few, s3):
    """Afterwards everything is built anew, as nothing is left."""
    client = boto3.client("s3", endpoint_url=s3.address)
    client.create_bucket(Bucket="fleeting")
    images, output = Store("s3://fleeting/images"), "s3://fleeting/out"
    for file in few.iterdir():
        images.write(file.name, file.read_bytes())

    class Deletes(Counting):
        def run_job(self, job):
            if job.task.name == "propose":
                for each in client.list_objects_v2(Bucket="fleeting")["Contents"]:
                    client.delete_object(Bucket="fleeting", Key=each["Key"])
                client.delete_bucket(Bucket="fleeting")
            super().run_job(job)

    with pytest.raises(GlitError) as caught:
        run_build(images.root, output, overrides=OVERRIDES, executor=Deletes())
    assert "\n" not in str(caught.value) and "fleeting" in str(caught.value)
    client.create_bucket(Bucket="fleeting")
    for file in few.iterdir():
        images.write(file.name, file.read_bytes())
    manifest = run_build(images.root, output, overrides=OVERRIDES)
    assert manifest.counts.shipped == NUM
    assert remote_bytes(output) == data_bytes(here)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "within", "message"),
    [
        ("cut", "/score-", "(?i)connection was closed|disconnected"),
        ("broken", "/data/", "internal error"),
        ("expired", "/pair-", "token has expired; renew or change the keys, then run it again"),
        ("cut", "/manifest.json", "(?i)connection was closed|disconnected"),
    ],
)
def test_what_fails_for_good_is_one_line_and_resumed(here, there, s3, fault, within, message):
    output = s3.url(f"stopped-{fault}-{within[1]}")
    started = Counting()
    with (
        s3.failing(lambda method, path: fault if method == "PUT" and within in path else ""),
        pytest.raises(StorageError, match=message) as caught,
    ):
        run_build(there, output, overrides=OVERRIDES, executor=started)
    assert str(caught.value).startswith("s3://bucket/stopped-")
    assert "\n" not in str(caught.value)
    assert not Store(output).exists("manifest.json")
    assert not status(output)["complete"]
    again = Counting()
    run_build(there, output, overrides=OVERRIDES, executor=again)
    assert sum(again.stages.values()) <= 12 - sum(started.stages.values())
    assert remote_bytes(output) == data_bytes(here)
    assert list(verify(output)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("method", "within", "tries"), [("PUT", "/pair-", 4), ("GET", ".png", 8)])
def test_a_store_that_is_silent_for_good_is_one_line(
    here, there, s3, monkeypatch, method, within, tries
):
    """Two attempts of botocore's, two of s3fs around them, two again where a body is read."""
    now = {"retries": {"mode": "standard", "total_max_attempts": 2}, "read_timeout": 0.2}
    monkeypatch.setitem(conf, "s3", {"config_kwargs": now})
    output = s3.url(f"silent-{method}")
    asked = []

    def silent(found: str, path: str) -> str:
        if found == method and within in path:
            asked.append(path)
            return "silent"
        return ""

    with s3.failing(silent), pytest.raises(StorageError, match="(?i)read timeout") as caught:
        run_build(there, output, overrides=OVERRIDES)
    assert "\n" not in str(caught.value)
    assert asked.count(asked[0]) == tries
    run_build(there, output, overrides=OVERRIDES)
    assert remote_bytes(output) == data_bytes(here)


def test_of_a_store_that_falls_silent_nothing_more_is_asked(there, s3, monkeypatch):
    """But by the thread of the lock, for which nobody waits for long."""
    now = {"retries": {"mode": "standard", "total_max_attempts": 1}, "read_timeout": 0.2}
    monkeypatch.setitem(conf, "s3", {"config_kwargs": now})
    monkeypatch.setattr(one_build, "_RELEASE_S", 0.0)
    output, asked = s3.url("falls-silent"), []

    def silent(method: str, path: str) -> str:
        if asked or (method == "PUT" and "/split-" in path):
            asked.append(path)
            return "silent"
        return ""

    with s3.failing(silent):
        with pytest.raises(StorageError, match="(?i)read timeout .*split-"):
            run_build(there, output, overrides=OVERRIDES)
        at_the_end = list(asked)
        lock = next(each for each in threading.enumerate() if each.name == "lock")
        lock.join()
    assert all("/split-" in path or "lock" in path for path in at_the_end), at_the_end


@pytest.mark.slow
def test_an_expired_key_drops_no_image(there, s3):
    output = s3.url("expired")
    with (
        s3.failing(lambda method, path: "expired" if method == "GET" and ".png" in path else ""),
        pytest.raises(StorageError, match="token has expired") as caught,
    ):
        run_build(there, output, overrides=OVERRIDES)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
    assert not Store(f"{output}/work").names("ingest")
    one = min(Store(there).names())
    with s3.failing(times("denied", 1, "GET", within=one)):
        manifest = run_build(there, output, overrides=OVERRIDES)
    assert manifest.counts.drops == {"ingest/unreadable": 1}
    after = retry(output, LocalExecutor(), quiet())
    assert (after.counts.shipped, after.counts.drops) == (NUM, {})


@pytest.mark.slow
def test_captions_there(scenes, few, there, s3, tmp_path):
    Store(s3.url("")).write("texts/captions.jsonl", (scenes / "captions.jsonl").read_bytes())
    rows = [json.loads(line) for line in (scenes / "captions.jsonl").read_text().splitlines()]
    by_address = [{**row, "path": f"{there}/{Path(row['path']).name}"} for row in rows[:NUM]]
    text = "".join(json.dumps(row) + "\n" for row in by_address).encode()
    Store(s3.url("")).write("texts/addresses.jsonl", text)
    run_build(
        there, s3.url("captions"), captions=s3.url("texts/addresses.jsonl"),
        overrides=["ingest.chunk_size=2"],
    )  # fmt: skip
    run_build(few, tmp_path / "out", captions=s3.url("texts/captions.jsonl"), limit=2)
    assert len(Dataset(s3.url("captions"))) == NUM
    with pytest.raises(GlitError, match="captions s3://bucket/none.jsonl: no such file"):
        run_build(there, s3.url("none"), captions=s3.url("none.jsonl"))
