"""Ask whether addresses of pictures answer: few of them, with limits, and none in private networks.

Addresses come from strangers. A request goes to the very number that was checked, whatever the
name leads to a moment later, and every redirection is checked again.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin, urlsplit

from glit.inspection.hashed_sample import HashedSample, hash_key

MOST_ADDRESSES = 200
"""Addresses that are asked; of more, those with the smallest hashes."""
_AT_ONCE = 8
_SECONDS = 5.0
_MOST_SECONDS = 15.0
"""Longest time for an answer that comes in drops."""
_MOST_REDIRECTIONS = 3
_ERRORS = (OSError, http.client.HTTPException, ValueError)


class AddressSample:
    """A sample of bounded size, the same for the same addresses in any order."""

    def __init__(self) -> None:
        self._kept = HashedSample[tuple[str, str]](MOST_ADDRESSES)

    @property
    def number(self) -> int:
        """Addresses that were added."""
        return self._kept.seen

    def add(self, address: str, name: str) -> None:
        """Add the address of an image."""
        self._kept.add(hash_key(address), (address, name))

    def faults(self) -> Iterator[tuple[str, str]]:
        """Ask all addresses of the sample; yield those that are dead: the name, and the reason."""
        kept = self._kept.values()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = pool.map(lambda each: address_fault(each[0]), kept)
            for (address, name), fault in zip(kept, answers, strict=True):
                if fault:
                    yield name, f"{address[:120]}: {fault}"

    def __len__(self) -> int:
        return len(self._kept)


def address_fault(address: str) -> str:
    """Ask an address with HEAD; return why it is dead, empty if a file is there."""
    for _ in range(_MOST_REDIRECTIONS + 1):
        try:
            status, further = _head(address)
        except _ERRORS as error:
            return str(error) or type(error).__name__
        if status in (405, 501):
            return ""  # somebody is there who does not know HEAD
        if not 300 <= status < 400 or not further:
            return "" if status < 400 else f"answers {status}"
        address = urljoin(address, further)
    return f"more than {_MOST_REDIRECTIONS} redirections"


def _head(address: str) -> tuple[int, str]:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError("want http:// or https://, without a user")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    link = socket.create_connection((_public(parts.hostname, port), port), timeout=_SECONDS)
    ended = threading.Timer(_MOST_SECONDS, link.shutdown, [socket.SHUT_RDWR])
    ended.daemon = True
    with link:
        ended.start()
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=_SECONDS)
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        try:
            connection.sock = link
            if parts.scheme == "https":
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(link, server_hostname=parts.hostname)
            connection.request("HEAD", path, headers={"User-Agent": "glit"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Location") or ""
        finally:
            ended.cancel()
            connection.close()


def _public(host: str, port: int) -> str:
    """The number of a host, if it and all its others are public.

    Raises:
        ValueError: one is of a private network or this machine.
        OSError: there is no such host.
    """
    found = [each[4][0] for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not all(ipaddress.ip_address(str(each).partition("%")[0]).is_global for each in found):
        raise ValueError("leads to a private network, which is not asked")
    return str(found[0])
