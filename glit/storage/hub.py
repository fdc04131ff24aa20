"""The Hugging Face Hub: the settings of its client, and its errors in one line."""

from __future__ import annotations

import logging
import os
from typing import Any

_ADDRESS = "https://huggingface.co"
_CLIENTS = ("huggingface_hub", "httpx", "httpx2")
_LOGIN = "log in with: hf auth login, or set HF_TOKEN"
_STATUS = {
    401: f"the Hub does not accept the access token, or there is none; {_LOGIN}",
    402: "the Hub wants a payment for this",
    403: "the access token does not have the right to this",
    404: "no such repository, or a private one that the access token may not see",
    429: "the Hub has had too many requests",
}


def endpoint() -> str:
    """The Hub's address: HF_ENDPOINT, as it is now."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ADDRESS


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids requests, as the Hub's client has read it or as it is
    now."""
    from huggingface_hub.constants import is_offline_mode

    return is_offline_mode() or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes")


def quiet_client() -> None:
    """Keep the client from logging every try with its address, which can be signed."""
    logger = logging.getLogger("huggingface_hub.utils._http")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def hub_settings() -> dict[str, Any]:
    """The settings of the Hub's file system, which would else read 5 MB where 1 kB is wanted."""
    quiet_client()
    return {"endpoint": endpoint(), "block_size": 1}


def hub_fault(error: BaseException | None) -> tuple[str, bool] | None:
    """Return the error that the Hub's client met, without addresses, and whether the token is at
    fault.

    Returns:
        None for an error of something else.
    """
    while error is not None:
        if type(error).__module__.partition(".")[0] in _CLIENTS:
            return _told(error)
        error = error.__cause__
    return None


def _told(error: BaseException) -> tuple[str, bool]:
    status = getattr(getattr(error, "response", None), "status_code", None)
    name = type(error).__name__
    if name == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set, and it is on the Hub", False
    if name in ("RepositoryNotFoundError", "GatedRepoError"):  # also where the Hub answers 401
        return _STATUS[404], False
    if name == "RemoteEntryNotFoundError":
        return "a file there is gone", False
    if status is None and type(error).__module__.startswith("huggingface_hub"):
        return f"the Hub's client failed ({name})", False
    if status is None:
        return f"the connection to the Hub failed ({name})", False
    said = str(getattr(error, "server_message", None) or "").strip().splitlines()
    reason = _STATUS.get(status) or f"the Hub answered {status}"
    return f"{reason} ({said[0]})" if said else reason, status in (401, 403)
