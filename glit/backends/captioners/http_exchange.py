"""One exchange with an OpenAI-compatible server, bounded in time and bytes, and what it said."""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from glit.errors import cut

MOST_BYTES = 8 << 20
"""Longest answer, on the wire and unpacked."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_MOST_REDIRECTS = 3
_KEEP_METHOD = (307, 308)


class TooLongError(Exception):
    """The answer is longer than :data:`MOST_BYTES`; it was not read to its end."""


class BrokenAnswerError(Exception):
    """The answer cannot be used as it is; asked again, it may be better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400

    def words(self) -> str:
        """Return the server's reason for a failure, in a line without keys, quoted for a
        message."""
        if self.is_redirect:
            return f"it sends on to {cut(self.headers.get('location', 'nowhere'))}"
        text = self.body.decode(errors="replace")
        with contextlib.suppress(ValueError, RecursionError):
            text = reason(json.loads(text)) or text
        return cut(" ".join(text.split())) or "no reason given"

    def json(self) -> dict[str, Any]:
        """The body's object.

        Raises:
            BrokenAnswerError: it is no JSON object, or is cut.
        """
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            said = cut(repr(self.body[:200].decode(errors="replace"))) if self.body else "nothing"
            raise BrokenAnswerError(f"the answer is no JSON, or is cut: {said}") from error
        if not isinstance(found, dict):
            raise BrokenAnswerError(f"the answer is no JSON object, but {cut(repr(found))}")
        return found


def reason(answer: Any) -> str:
    """Return the text of a server's error object; empty where there is none.

    >>> reason({"error": {"message": "slow down", "metadata": {"raw": "busy"}}})
    'slow down (busy)'
    >>> reason({"detail": "Not Found"}), reason({"error": "bad key"}), reason({"choices": []})
    ('Not Found', 'bad key', '')
    """
    if not isinstance(answer, dict):
        return ""
    for key in ("error", "message", "detail"):
        found = answer.get(key)
        if isinstance(found, dict):
            metadata = found.get("metadata")
            raw = metadata.get("raw") if isinstance(metadata, dict) else None
            said = reason({k: v for k, v in found.items() if k != "error"}) or json.dumps(found)
            return f"{said} ({raw})" if isinstance(raw, str) and raw else said
        if found:
            return found if isinstance(found, str) else json.dumps(found)
    return ""


def exchange(
    client: httpx.Client, method: str, path: str, *, timeout_s: float, body: Any = None
) -> Answer:
    """Send a request and read its answer to the end. Follow redirects within the same server.

    Args:
        client: with a base address.
        method: of HTTP.
        path: below the base address.
        timeout_s: for the whole of it.
        body: goes as JSON; None sends none.

    Raises:
        httpx.TransportError: no answer within that time, or none at all.
        TooLongError: more than :data:`MOST_BYTES`.
        BrokenAnswerError: a damaged compression.
    """
    deadline = time.monotonic() + timeout_s
    url = httpx.URL(f"{str(client.base_url).rstrip('/')}{path}")
    for _ in range(_MOST_REDIRECTS):
        answer = _answer(client, client.build_request(method, url, json=body, timeout=timeout_s),
                         deadline, timeout_s)  # fmt: skip
        if answer.status not in _KEEP_METHOD:
            return answer
        try:
            onward = url.join(answer.headers.get("location", ""))
        except httpx.InvalidURL:
            return answer
        if (onward.scheme, onward.host, onward.port) != (url.scheme, url.host, url.port):
            return answer
        url = onward
    request = client.build_request(method, url, json=body, timeout=timeout_s)
    return _answer(client, request, deadline, timeout_s)


def _answer(
    client: httpx.Client, request: httpx.Request, deadline: float, timeout_s: float
) -> Answer:
    response = client.send(request, stream=True, follow_redirects=False)
    try:
        body = bytearray()
        for part in response.iter_raw():
            body += part
            if len(body) > MOST_BYTES:
                raise TooLongError(f"the answer is longer than {MOST_BYTES >> 20} MB")
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout(f"the answer did not end within {timeout_s:g} s")
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        return Answer(
            status=response.status_code,
            headers=response.headers,
            body=_unpacked(bytes(body), encoding),
        )
    finally:
        response.close()


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("identity", "") or not body:
        return body
    if encoding not in _WINDOW_BITS:
        raise BrokenAnswerError(
            f"the answer is compressed as {encoding!r}, which was not asked for"
        )
    unpacking = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        found = unpacking.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise BrokenAnswerError(
            f"the answer says it is {encoding}, and is not ({error})"
        ) from error
    if len(found) > MOST_BYTES:
        raise TooLongError(f"the answer is longer than {MOST_BYTES >> 20} MB when it is unpacked")
    if not unpacking.eof:
        raise BrokenAnswerError(f"the answer's {encoding} is cut")
    return found


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """Seconds to wait by a ``Retry-After`` header: a number, or a date; None for neither.

    >>> retry_after_s("2.5", 0.0), retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    (2.5, 40.0)
    """
    if not text:
        return None
    try:
        wait = float(text)
    except ValueError:
        try:
            wait = email.utils.parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, TypeError, OverflowError):
            return None
    return max(wait, 0.0) if wait < math.inf else None
