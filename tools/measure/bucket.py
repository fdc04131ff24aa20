"""Listing a bucket of many objects: seconds and memory, against a server that makes up its pages.

python -m tools.measure.bucket 200000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from glit.bench.harness import Row, in_own_process
from glit.bench.machine import peak_mb, resident_mb
from tools.measure.parts import run_parts

_PAGE = 1000
_WAYS = {
    "find": "objects by fsspec's find",
    "walk": "objects by glit's walk",
    "listing": "chunks by glit's sorted listing",
}


class _Bucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    total = 0

    def do_GET(self) -> None:
        """A page of ``list_objects_v2``; images and captions in turn."""
        start = int(parse_qs(urlsplit(self.path).query).get("continuation-token", ["0"])[0])
        stop = min(self.total, start + _PAGE)
        objects = "".join(
            f"<Contents><Key>images/{n // 2:09d}.{'txt' if n % 2 else 'jpg'}</Key>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;{n:032x}&quot;</ETag>"
            f"<Size>{n}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for n in range(start, stop)
        )
        more = stop < self.total
        token = f"<NextContinuationToken>{stop}</NextContinuationToken>" if more else ""
        text = (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{objects}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def bucket(total: int) -> Iterator[str]:
    """The address of a server with these many objects."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Full", (_Bucket,), {"total": total}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def measure(how: str, address: str) -> dict[str, float]:
    """What one way of listing takes, in this process."""
    from glit.pipeline.listing import gathered, write_listing
    from glit.pipeline.source import entries, find_source
    from glit.storage.remote import open_remote
    from glit.storage.store import Store

    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}
    images = "s3://bucket/images"
    fs, base = open_remote(images)

    def listing() -> int:
        with tempfile.TemporaryDirectory() as folder:
            found = entries(find_source(images), sidecars=(".txt",))
            path = Path(folder) / "listing.parquet"
            with gathered(found, path.parent, num_beside=1) as now:
                return len(write_listing(now, path, chunk_size=256, limit=None))

    ways = {
        "find": lambda: len(fs.find(base, detail=True)),
        "walk": lambda: sum(1 for _ in Store(images).walk()),
        "listing": listing,
    }
    before, begin = resident_mb(), time.perf_counter()
    number = ways[how]()
    took = time.perf_counter() - begin
    return {"number": number, "seconds": took, "more_mb": peak_mb() - before}


def listings(arguments: argparse.Namespace) -> Iterator[Row]:
    """All ways, each in a process of its own."""
    with bucket(arguments.objects) as address:
        for how, what in _WAYS.items():
            yield {"what": what, **in_own_process(measure, how, address)}


def main() -> None:
    """List so many objects."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.bucket", description=__doc__)
    parser.add_argument("objects", type=int)
    run_parts(parser, {"bucket": listings})


if __name__ == "__main__":
    main()
