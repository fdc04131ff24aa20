"""Reservations for paths of pictures, in files of the user: tdmrep.json, ai.txt, robots.txt.

A picture's path in its folder or archive is taken as the path on the site from which it came. The
longest rule of a file that matches a path counts, as in RFC 9309; of equally long ones that which
allows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from glit.errors import InputError
from glit.storage.members import split
from glit.storage.store import Store, absolute

_MOST_BYTES = 8 << 20
_SITE = re.compile(r"https?://[^/]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The rules of one file."""

    name: str
    """The file's name."""
    sha256: str
    rules: tuple[tuple[str, bool], ...]
    """Patterns of paths, and whether mining is prohibited there."""

    def mining(self, path: str) -> str | None:
        """``prohibited`` or ``allowed`` for a picture's path in its folder or archive; None if no
        rule matches."""
        place = split(path)
        whole = "/" + (path if place is None else place[1])
        found = [(len(p), not reserved) for p, reserved in self.rules if matches(p, whole)]
        return None if not found else ("allowed" if max(found)[1] else "prohibited")


def matches(pattern: str, path: str) -> bool:
    """Return whether a pattern matches the beginning of a path, in time linear in both.

    ``*`` stands for any characters, ``$`` at the end for the end of the path.

    >>> matches("/photos/", "/photos/a.jpg"), matches("*.png$", "/photos/a.jpg")
    (True, False)
    """
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at, is_whole = len(first), pattern.endswith("$")
    last = others.pop() if others and is_whole else None
    for part in others:
        if (found := path.find(part, at)) < 0:
            return False
        at = found + len(part)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= at
    return not is_whole or at == len(path)


def read_reservations(file: str, agents: Collection[str]) -> Reservations:
    """Read a file of reservations, here or at an address.

    Args:
        file: ``.json`` as of the TDM Reservation Protocol; else like robots.txt.
        agents: user agents whose groups count, in a file like robots.txt.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    folder, _, name = absolute(file).rpartition("/")
    try:
        data = Store(folder or "/").read_range(name, 0, _MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{file}: too large, want at most {_MOST_BYTES >> 20} MB of reservations")
    try:
        text = data.decode("utf-8-sig")
        rules = _tdmrep(json.loads(text)) if name.endswith(".json") else _robots(text, agents)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file}: {error}; want tdmrep.json, a list of objects with location and "
            "tdm-reservation, or a text file like robots.txt"
        ) from error
    return Reservations(name=name, sha256=hashlib.sha256(data).hexdigest(), rules=tuple(rules))


def _tdmrep(content: Any) -> list[tuple[str, bool]]:
    """Rules of the TDM Reservation Protocol."""
    rules = []
    for entry in content if isinstance(content, list) else [None]:
        location = entry.get("location") if isinstance(entry, dict) else None
        reserved = entry.get("tdm-reservation") if isinstance(entry, dict) else None
        if not isinstance(location, str) or reserved not in (0, 1):
            raise ValueError("an entry lacks location, or its tdm-reservation is not 0 or 1")
        rules.append((_pattern(location), bool(reserved)))
    return rules


def _robots(text: str, agents: Collection[str]) -> list[tuple[str, bool]]:
    """Rules of the groups of some user agents, as in robots.txt."""
    wanted = {agent.lower() for agent in agents}
    rules, counts, in_names, known = [], False, False, False
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            counts = (in_names and counts) or value.lower() in wanted
            in_names = known = True
        elif key in ("allow", "disallow"):
            in_names, known = False, True
            if counts and value:
                rules.append((_pattern(value), key == "disallow"))
    if not known:
        raise ValueError("no line names a user agent")
    return rules


def _pattern(location: str) -> str:
    """A pattern as paths of files have it: without escapes, and from the root on.

    >>> _pattern("https://example.com/a%20b/"), _pattern("*.jpg")
    ('/a b/', '*.jpg')
    """
    plain = unquote(_SITE.sub("", location))
    return plain if plain.startswith(("/", "*")) else "/" + plain
