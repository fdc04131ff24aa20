"""A real S3 server on loopback, and in front of it a proxy that fails."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import boto3
from faulty_proxy import FaultyStore
from moto.server import ThreadedMotoServer

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "very-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def _error(status: int, code: str, message: str) -> tuple[int, bytes]:
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, text.encode()


ERRORS = {
    "broken": _error(500, "InternalError", "We encountered an internal error. Please try again."),
    "busy": _error(503, "SlowDown", "Please reduce your request rate."),
    "expired": _error(400, "ExpiredToken", "The provided token has expired."),
    "denied": _error(403, "AccessDenied", "Access Denied"),
}


@contextlib.contextmanager
def faulty_s3() -> Iterator[FaultyStore]:
    """The server behind the proxy; boto and everything on it find the proxy by the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    found = FaultyStore(kind="s3", errors=ERRORS, behind=moto.get_host_and_port())
    with found.running():
        before = {name: os.environ.get(name) for name in (*KEYS, "AWS_ENDPOINT_URL")}
        os.environ.update(KEYS, AWS_ENDPOINT_URL=found.address)
        try:
            client = boto3.client("s3")
            client.create_bucket(Bucket=found.bucket)
            client.close()
            yield found
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            moto.stop()
