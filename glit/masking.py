"""Hide keys and passwords in text that leaves the process: messages, tables, manifests, logs."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import traceback
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit

HIDDEN = "***"
_SHORTEST = 6
"""Shorter values are words of ordinary text too."""
_USER = re.compile(r"(?<=://)[^\s/?#@\"'<>]*(?:@[^\s/?#@\"'<>]*)*@")
_TOKEN = re.compile(
    r"(?i)([?&](?:[\w.-]*(?:token|secret|password|signature|credential|api[-_]?key)|key|sig)=)"
    r"[^&\s#\"'<>]+"
)
_VARIABLES = (
    "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
)  # fmt: skip
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_remembered: set[str] = set()


def remember(value: str) -> None:
    """Hide a value from now on, wherever :func:`masked` is used in this process."""
    if len(value) >= _SHORTEST:
        _remembered.update((value, base64.b64encode(value.encode()).decode()))


def remember_address(address: str) -> None:
    """Hide the user and password of an address, as they stand there and as they are sent."""
    user, password = user_of(address)
    remember(password)
    if password:
        remember(f"{user}:{password}")


def user_of(address: str) -> tuple[str, str]:
    """The user and the password that an address holds, as they are meant; empty for none.

    >>> user_of("http://ann:se%40cret@host/v1"), user_of("http://host/v1")
    (('ann', 'se@cret'), ('', ''))
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", ""
    return unquote(parts.username or ""), unquote(parts.password or "")


def masked(text: str) -> str:
    """The text without keys that came from the environment, and without secrets of addresses.

    >>> masked("http://ann:secret@host/v1?api_key=abcd&n=1 fails")
    'http://***@host/v1?api_key=***&n=1 fails'
    """
    found = _USER.sub(f"{HIDDEN}@", text)
    found = _TOKEN.sub(rf"\g<1>{HIDDEN}", found)
    for value in sorted(_secrets(), key=len, reverse=True):
        found = found.replace(value, HIDDEN)
    return found


def mask_tracebacks() -> None:
    """Print the traceback of an unexpected error masked, whatever library raised it."""
    sys.excepthook = _print_masked


def _print_masked(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    print(masked("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


def without_secrets(address: str) -> str:
    """An address that may be written down: without user, password and secret parameters.

    >>> without_secrets("https://ann:secret@host:8000/v1")
    'https://host:8000/v1'
    """
    return masked(_USER.sub("", address))


def _secrets() -> set[str]:
    """Every form in which a secret may stand in a text."""
    values = _remembered | {os.environ.get(name, "") for name in _VARIABLES}
    for name in _PROXIES:
        for variable in (name, name.upper()):
            values.add(user_of(os.environ.get(variable, ""))[1])
    plain = {value for value in values if len(value) >= _SHORTEST}
    return plain | {form for value in plain for form in (quote(value, ""), json.dumps(value)[1:-1])}
