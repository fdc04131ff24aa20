"""Client settings for object stores: glit's defaults, overridden by the user's."""

from __future__ import annotations

import logging
import os
from typing import Any

from fsspec import config

from glit.storage.hub import hub_settings

EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs",
    "az": "az", "abfs": "az", "abfss": "az", "adl": "az", "hf": "models",
}  # fmt: skip
"""Which extra opens which kind of address."""
CONNECT_S = 10
SILENT_S = 30
"""A request whose answer is silent for so long is asked again."""
S3_TRIES = 2
"""By s3fs, each of four by botocore; when reading, each of two again, as the body may break off."""
_S3: dict[str, Any] = {
    "config_kwargs": {
        "retries": {"mode": "standard", "total_max_attempts": 4},
        "connect_timeout": CONNECT_S,
        "read_timeout": SILENT_S,
        "max_pool_connections": 64,
    },
    "max_concurrency": 1,  # more would ask for the size of every object before reading it
}
_S3_VARIABLES = {"mode": "AWS_RETRY_MODE", "total_max_attempts": "AWS_MAX_ATTEMPTS"}
"""Retries that botocore takes from the environment, but only where they are not given."""
_LOGGERS = ("aiobotocore", "s3fs", "gcsfs", "adlfs", "azure")


def settings(kind: str) -> dict[str, Any]:
    """The client settings for an address's scheme.

    What the user has set in fsspec's configuration goes before glit's, each value by itself.
    """
    extra = EXTRAS.get(kind, "")
    own: dict[str, Any] = {"use_listings_cache": False}
    if extra:
        _quiet_loggers()
    if extra == "s3":
        own |= _for_s3()
    elif extra == "gs":
        own |= _for_gs()
    elif kind == "hf":
        own |= hub_settings()
    users: dict[str, Any] = {}
    for name, its in EXTRAS.items():
        if its == extra:
            users |= config.conf.get(name, {})
    users |= config.conf.get(kind, {})
    return _merged(own, users)


def _for_s3() -> dict[str, Any]:
    """Settings for S3, without those that the environment sets."""
    retries: dict[str, Any] = _S3["config_kwargs"]["retries"]
    left = {name: its for name, its in retries.items() if _S3_VARIABLES[name] not in os.environ}
    return {**_S3, "config_kwargs": {**_S3["config_kwargs"], "retries": left}}


def _for_gs() -> dict[str, Any]:
    """Settings for gcsfs, which makes six tries but has no timeout of its own."""
    try:
        from aiohttp import ClientTimeout
    except ImportError:  # nor is gcsfs there, which will be said
        return {}
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    return {"requests_timeout": timeout}


def _merged(own: dict[str, Any], users: dict[str, Any]) -> dict[str, Any]:
    """Both, the user's before; botocore would not look at one of its two numbers of attempts."""
    if "max_attempts" in users:
        own = {name: value for name, value in own.items() if name != "total_max_attempts"}
    merged = {**own, **users}
    for name, value in users.items():
        before = own.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = _merged(before, value)
    return merged


def _quiet_loggers() -> None:
    """Keep messages of clients off standard error, also if no handler takes them: errors say what
    is to be said."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, logging.NullHandler) for each in logger.handlers):
            logger.addHandler(logging.NullHandler())


def set_by_program() -> dict[str, dict[str, Any]]:
    """The fsspec settings that this process made, beyond files and environment.

    Those every machine reads for itself; this has to be brought to it.
    """
    known: dict[str, dict[str, Any]] = {}
    config.set_conf_files(config.conf_dir, known)
    config.set_conf_env(known)
    changed = {
        kind: {k: v for k, v in now.items() if k not in (of := known.get(kind, {})) or of[k] != v}
        for kind, now in config.conf.items()
    }
    return {kind: values for kind, values in changed.items() if values}


def set_here(changed: dict[str, dict[str, Any]]) -> None:
    """Apply these fsspec settings in this process."""
    for kind, values in changed.items():
        config.conf.setdefault(kind, {}).update(values)
