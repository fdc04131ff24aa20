"""One exchange with an OpenAI-compatible server, bounded in time and bytes, and what it said."""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from glit.errors import cut, first_line

MOST_BYTES = 8 << 20
"""Longest answer, unpacked."""


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
    """Send a request and read its answer to the end. Redirects are not followed: what the images
    show goes to the address that the user gave, and to no other.

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
    found = bytearray()
    try:
        with client.stream(method, path, json=body, timeout=timeout_s) as response:
            for part in response.iter_bytes():
                found += part
                if len(found) > MOST_BYTES:
                    raise TooLongError(f"the answer is longer than {MOST_BYTES >> 20} MB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the answer did not end within {timeout_s:g} s")
    except httpx.DecodingError as error:
        raise BrokenAnswerError(f"its compression is damaged ({first_line(error)})") from error
    return Answer(status=response.status_code, headers=response.headers, body=bytes(found))


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
