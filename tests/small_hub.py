"""A small Hugging Face Hub on loopback: the routes that its client calls for datasets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "verysecret" * 3
OWNER = "me"
LFS_FROM_BYTES = 10_000
"""Larger files, and Parquet files, are kept as large files."""


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


@dataclass
class Hub:
    """What lies on it, and what goes wrong."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Large files by SHA-256, committed or not."""
    uploads: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    uploads_left: int | None = None
    """Then the connection is cut off."""
    tokens: dict[str, str] = field(default_factory=lambda: {TOKEN: "write"})

    def clear(self) -> None:
        fresh = Hub(address=self.address)
        for name, value in vars(fresh).items():
            setattr(self, name, value)


def is_large(path: str, size: int) -> bool:
    return size > LFS_FROM_BYTES or path.endswith(".parquet")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None: ...

    def answer(self, status: int, body: object = None, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def right(self) -> str:
        """What the token may: write, read, nothing (empty), or wrong."""
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return self.hub.tokens.get(bearer, "wrong") if bearer else ""

    def handle_request(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.startswith("/objects/"):
            self.put_object(path.rsplit("/", 1)[1], body)
        elif self.right() == "wrong":
            message = "Invalid credentials in Authorization header"
            self.answer(401, {"error": message}, X_Error_Message=message)
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        else:
            self.of_repository(path, body)

    do_GET = do_POST = do_PUT = do_HEAD = handle_request

    def put_object(self, oid: str, body: bytes) -> None:
        if self.hub.uploads_left is not None:
            if self.hub.uploads_left == 0:
                self.cut()
                return
            self.hub.uploads_left -= 1
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self.hub.uploads.append(oid)
        self.answer(200)

    def create(self, asked: dict) -> None:
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        if self.right() != "write" or not name.startswith(f"{OWNER}/"):
            message = f'You don\'t have the rights to create a dataset under "{name}"'
            self.answer(403, {"error": message}, X_Error_Message=message)
        elif name in self.hub.repositories:
            url = f"{self.hub.address}/datasets/{name}"
            self.answer(409, {"error": "You already created this dataset repo", "url": url})
        else:
            private = asked.get("visibility") == "private"
            self.hub.repositories[name] = Repository(private, {".gitattributes": b"*.parquet lfs"})
            self.answer(200, {"url": f"{self.hub.address}/datasets/{name}"})

    def of_repository(self, path: str, body: bytes) -> None:
        parts = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        name = f"{parts[0]}/{parts[1].removesuffix('.git')}"
        found = self.hub.repositories.get(name)
        if found is None or (found.private and not self.right()):
            self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return
        what, rest = (parts[2] if len(parts) > 2 else ""), parts[3:]
        if what in ("revision", "tree", "resolve", "paths-info") and rest[0] not in (
            "main",
            "0" * 40,
        ):
            self.answer(404, {"error": "Invalid rev"}, X_Error_Code="RevisionNotFound")
        elif self.command == "POST" and what != "paths-info" and not self.writes(name):
            self.answer(403, {"error": "Forbidden"}, X_Error_Message="Forbidden")
        elif what in ("", "revision"):
            self.answer(200, {"id": name, "sha": "0" * 40, "private": found.private})
        elif what == "tree":
            self.tree(found, "/".join(rest[1:]), "recursive=true" in self.path.lower())
        elif what == "resolve":
            self.resolve(found, "/".join(rest[1:]))
        elif what == "preupload":
            self.answer(200, {"files": [self.mode(each) for each in json.loads(body)["files"]]})
        elif what == "info":
            self.batch(json.loads(body)["objects"])
        elif what == "commit":
            self.commit(name, found, [json.loads(line) for line in body.splitlines()])
        else:
            self.answer(404, {"error": f"this Hub does not know {path}"})

    def writes(self, name: str) -> bool:
        return self.right() == "write" and name.startswith(f"{OWNER}/")

    def mode(self, file: dict) -> dict:
        large = is_large(file["path"], file["size"])
        return {
            "path": file["path"],
            "uploadMode": "lfs" if large else "regular",
            "shouldIgnore": False,
        }

    def batch(self, objects: list[dict]) -> None:
        found = []
        for each in objects:
            actions = {"upload": {"href": f"{self.hub.address}/objects/{each['oid']}?Signature=x"}}
            found.append(each if each["oid"] in self.hub.objects else {**each, "actions": actions})
        self.answer(200, {"transfer": "basic", "objects": found})

    def commit(self, name: str, found: Repository, lines: list[dict]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                found.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                found.files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del found.files[value["path"]]
        found.commits.append(lines[0]["value"]["summary"])
        self.answer(
            200,
            {"commitUrl": f"{self.hub.address}/datasets/{name}/commit/0", "commitOid": "0" * 40},
        )

    def tree(self, found: Repository, below: str, recursive: bool) -> None:
        prefix = f"{below}/" if below else ""
        entries: dict[str, dict] = {}
        for path, data in found.files.items():
            if not path.startswith(prefix):
                continue
            folder = path.removeprefix(prefix).partition("/")[0]
            if "/" in path.removeprefix(prefix) and not recursive:
                entries[folder] = {
                    "type": "directory",
                    "path": prefix + folder,
                    "oid": "1",
                    "size": 0,
                }
                continue
            oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entries[path] = {"type": "file", "path": path, "size": len(data), "oid": oid}
            if is_large(path, len(data)):
                sha256 = hashlib.sha256(data).hexdigest()
                entries[path]["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 130}
        if prefix and not entries:
            self.answer(404, {"error": "not found"}, X_Error_Code="EntryNotFound")
        else:
            self.answer(200, list(entries.values()))

    def resolve(self, found: Repository, path: str) -> None:
        if path not in found.files:
            self.answer(404, {"error": "not found"}, X_Error_Code="EntryNotFound")
            return
        data, asked = found.files[path], self.headers.get("Range", "")
        if asked.startswith("bytes="):
            start, _, end = asked.removeprefix("bytes=").partition("-")
            last = int(end) if end else len(data) - 1
            part = f"bytes {start}-{last}/{len(data)}"
            self.answer(206, data[int(start) : last + 1], Content_Range=part)
        else:
            etag = f'"{hashlib.sha256(data).hexdigest()}"'
            self.answer(200, data, X_Repo_Commit="0" * 40, ETag=etag)


@contextlib.contextmanager
def small_hub() -> Iterator[Hub]:
    """A running Hub."""
    hub = Hub()
    handler = type("OfThisHub", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
