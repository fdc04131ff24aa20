"""Events of a run for other programs: lines of JSON in a file, and metrics for Prometheus."""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

from glit.errors import InputError, UserError, first_line
from glit.recipes.extras import require
from glit.runtime.progress import Listener

_GAUGES = {
    "done": "Samples of the stage that are done, also those of earlier runs.",
    "total": "Samples of the stage.",
    "rate_per_s": "Samples a second in this run.",
    "seconds_left": "Seconds until the stage is done, at this rate.",
    "dropped": "Samples that the stage has dropped in this run.",
    "units_running": "Chunks that workers are at.",
    "units_lost": "Chunks that were begun anew because their worker died.",
    "requests_repeated": "Requests that were sent again because a server did not answer them.",
}
"""Metrics of a stage, ``glit_NAME{stage=...}``; the same names as in the events."""


def json_lines(path: str) -> Listener:
    """Append a line of JSON to a file for every event, each with its ``time`` (UTC, ISO 8601).

    If the file cannot be written meanwhile, a warning says so once, and the first line that can be
    has the number of ``events_lost``.

    Raises:
        InputError: the file cannot be written.
    """
    file = Path(path).expanduser()
    try:
        file.open("ab").close()
    except OSError as error:
        raise InputError(f"--log-json {path}: {first_line(error)}") from error

    lost = 0

    def tell(event: dict[str, Any]) -> None:
        nonlocal lost
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": now, **({"events_lost": lost} if lost else {}), **event})
        try:
            # opened anew, as a program that rotates logs may have moved it
            with file.open("a", encoding="utf-8") as log:
                log.write(line + "\n")
            lost = 0
        except OSError as error:  # a full disk is no reason to end a build here
            if not lost:
                told = f"--log-json {path}: {first_line(error)}; events are lost until it is mended"
                warnings.warn(told, stacklevel=2)
            lost += 1

    return tell


def prometheus(address: str) -> Listener:
    """Serve metrics at ``http://HOST:PORT/metrics`` until the process ends.

    Args:
        address: ``HOST:PORT``, or a port of 127.0.0.1; IPv6 as ``[::1]:9000``.

    Raises:
        MissingExtraError: the client library is not installed.
        UserError: no address, or its port is taken.
    """
    require("metrics", needed_for="--metrics")
    from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    try:
        if not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ValueError(f"{port or 'nothing'} is no port")
        start_http_server(int(port), addr=host.strip("[]") or "127.0.0.1", registry=registry)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--metrics {address}: {first_line(error)}; want HOST:PORT, or a port from 1 to 65535"
        ) from error
    gauges = {
        name: Gauge(f"glit_{name}", text, ["stage"], registry=registry)
        for name, text in _GAUGES.items()
    }
    drops = Gauge("glit_drops", "Drops by reason.", ["stage", "reason"], registry=registry)
    memory = Gauge("glit_gpu_bytes", "Of the fullest GPU.", ["stage", "kind"], registry=registry)
    ends = Counter("glit_runs_ended", "Runs that ended, by how.", ["how"], registry=registry)

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "end":
            ends.labels("failed" if event["error"] else "done").inc()
        if event["event"] not in ("stage", "progress"):
            return
        stage = event["stage"]
        for name, gauge in gauges.items():
            gauge.labels(stage).set(math.nan if event[name] is None else event[name])
        for reason, number in event["drops"].items():
            drops.labels(stage, reason).set(number)
        if event["gpu_bytes"]:
            for kind, number in zip(("used", "total"), event["gpu_bytes"], strict=True):
                memory.labels(stage, kind).set(number)

    return tell
