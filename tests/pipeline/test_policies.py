"""The policies of docs/deploy allow what a build asks of a store, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import pytest
import yaml
from building import captions_only, noise

from glit.pipeline.work.build_lock import clean
from glit.storage.store import Store

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


@pytest.fixture
def photographs(tmp_path):
    """Three images, one without a caption, and their captions in the file beside the folder."""
    folder = noise(tmp_path / "photographs", 3)
    lines = [{"path": f"{n}.png", "caption": f"A ball. Box {n} is red."} for n in range(2)]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def use(store, photographs, run_glit):
    """Build from images there, add to it, retry a drop, clean; the requests of it all."""
    images, dataset = Store(store.url("photos")), store.url("datasets/out")
    names = sorted(photographs.iterdir())
    for file in names[:2]:
        images.write(file.name, file.read_bytes())
    store.requests.clear()
    line = captions_only(photographs, dataset, "--executor", "local", chunk_size=2)
    line[1] = images.root
    assert run_glit(*line).code == 0
    asked = list(store.requests)
    images.write(names[2].name, names[2].read_bytes())
    store.requests.clear()
    assert run_glit("add", dataset, "--executor", "local", "--quiet").code == 0
    assert run_glit("retry", dataset, "--executor", "local", "--quiet").code == 0
    assert clean(dataset) > 0
    return asked + store.requests


def s3_action(method, address):
    """The action of S3 that a request needs, as its documentation of the actions says it."""
    parts = urlsplit(address)
    query, has_key = parse_qs(parts.query, keep_blank_values=True), parts.path.count("/") > 1
    if not has_key or not parts.path.split("/", 2)[2]:
        if method == "POST" and "delete" in query:
            return "s3:DeleteObject"
        return {"GET": "s3:ListBucket", "HEAD": "s3:ListBucket"}.get(method, f"{method} a bucket")
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    known = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject"}
    return "s3:PutObject" if method == "POST" else known[method]


def test_the_policy_of_s3(photographs, s3, run_glit):
    policy = json.loads((DEPLOY / "s3-policy.json").read_text())
    allowed = {each["Sid"]: set(each["Action"]) for each in policy["Statement"]}
    found = {"photos": set(), "datasets": set()}
    for method, address in use(s3, photographs, run_glit):
        # listings name the folder in their query
        found["photos" if "photos" in address else "datasets"].add(s3_action(method, address))
    assert found["photos"] == allowed["List"] | allowed["ReadImages"]
    # nothing here is so large that s3fs uploads it in parts, which it gives up when one fails
    assert (
        found["datasets"] | {"s3:AbortMultipartUpload"}
        == allowed["List"] | allowed["WriteDatasets"]
    )


def test_the_rule_for_uploads_that_were_killed(s3):
    rule = json.loads((DEPLOY / "s3-lifecycle.json").read_text())
    client = boto3.client("s3", endpoint_url=s3.address)
    client.put_bucket_lifecycle_configuration(Bucket=s3.bucket, LifecycleConfiguration=rule)
    [kept] = client.get_bucket_lifecycle_configuration(Bucket=s3.bucket)["Rules"]
    client.delete_bucket_lifecycle(Bucket=s3.bucket)
    assert kept["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def google_permissions(method, address):
    """The permissions that a request of Google's JSON interface needs."""
    path = unquote(urlsplit(address).path)
    _, is_object, name = path.partition("/o")
    if "/rewriteTo/" in path or "/copyTo/" in path:
        return {"storage.objects.get", "storage.objects.create"}
    if method in ("POST", "PUT"):
        return {"storage.objects.create"}
    if method == "DELETE":
        return {"storage.objects.delete"}
    kind = "objects" if is_object else "buckets"
    return {f"storage.{kind}.{'get' if name.strip('/') or not is_object else 'list'}"}


def test_the_role_of_google(photographs, google, run_glit):
    role = yaml.safe_load((DEPLOY / "gs-role.yaml").read_text())
    found = set()
    for method, address in use(google, photographs, run_glit):
        if "/batch/" not in address:  # which carries requests of the other kinds
            found |= google_permissions(method, address)
    assert found | {"storage.objects.delete"} == set(role["includedPermissions"])
