"""Refuse what a recipe may not ask for by itself: code of pickles, keys, far servers, files.

A recipe may come from anybody. What it asks for of these is taken from ``--set``, or from a file
that the user confirmed once, by the SHA-256 of its content and of the files it is based on.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from glit.errors import RecipeError, cut
from glit.recipes.resources import builtin_recipes

VARIABLE = "GLIT_TRUST"
FILES = frozenset({"prompt", "calibration", "lists", "reservations", "class_names"})
"""Keys that name files: those of a recipe from its folder, those of ``--set`` from the current."""
_USUAL_KEY = "OPENAI_API_KEY"


def demands(
    tables: Mapping[str, Any],
    folder: Path,
    *,
    given: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Return the parts of a recipe's tables that need to be trusted, in words.

    Args:
        tables: raw ones of the file.
        folder: of the file; files below it are its own.
        given: tables and keys that the command line sets, which count for nothing here.
    """
    found = []
    if named := tables.get("plugins"):
        found.append(f"plugins = {cut(repr(named), 100)}, whose code runs")
    for name, table in tables.items():
        for key, value in table.items() if isinstance(table, dict) else ():
            if (name, key) not in given and _is_trusting(key, value, folder):
                found.append(f"{name}.{key} = {cut(repr(value), 100)}")
    caption = tables.get("caption")
    if isinstance(caption, dict) and isinstance(caption.get("prompt"), str):
        beside, kinds = Path(caption["prompt"]).parent, caption.get("kinds", ())
        for kind in kinds if isinstance(kinds, list) else ():
            if _is_elsewhere(str(beside / f"{kind}.txt"), folder):
                found.append(f"the prompt {beside / f'{kind}.txt'}")
    return found


def refuse_untrusted(file: str, wanted: Sequence[str], contents: Sequence[bytes]) -> None:
    """Refuse what a recipe asks for, unless the user confirmed its content.

    Raises:
        RecipeError: names what it is, and how it is allowed.
    """
    if not wanted or digest(contents) in _confirmed():
        return
    raise RecipeError(
        f"{file}: asks for {', '.join(wanted)}, which a recipe file may not by itself; if you "
        f"trust it, run glit trust {file} once, or give it with --set"
    )


def digest(contents: Sequence[bytes]) -> str:
    """SHA-256 of a recipe and the files it is based on."""
    each = [hashlib.sha256(content).hexdigest() for content in contents]
    return each[0] if len(each) == 1 else hashlib.sha256(" ".join(each).encode()).hexdigest()


def confirm(contents: Sequence[bytes]) -> Path:
    """Remember that the user trusts a recipe; the file that holds it.

    Raises:
        RecipeError: the file cannot be written.
    """
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="ascii") as file:
            file.write(digest(contents) + "\n")
    except OSError as error:
        raise RecipeError(
            f"{path}: cannot be written ({error.strerror}); set {VARIABLE}={digest(contents)} "
            "in the environment instead"
        ) from error
    return path


def _file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "glit" / "trusted-recipes"


def _confirmed() -> set[str]:
    try:
        remembered = _file().read_text(encoding="ascii", errors="replace")
    except OSError:
        remembered = ""
    return {*remembered.split(), *os.environ.get(VARIABLE, "").split()}


def _is_trusting(key: str, value: Any, folder: Path) -> bool:
    if key == "allow_pickle":
        return value is not False
    if key == "api_key_env":
        return value != _USUAL_KEY
    if key == "endpoint":
        return not is_here(str(value))
    paths = value if isinstance(value, list) else [value]
    return key in FILES and any(each != "" and _is_elsewhere(str(each), folder) for each in paths)


def is_here(address: str) -> bool:
    """Return whether an address is one of this machine alone.

    >>> is_here("http://127.0.0.1:8000/v1"), is_here("http://localhost.evil.example/v1")
    (True, False)
    """
    try:
        host = urlsplit(address).hostname or ""
        if "\\" in address or not address.isprintable():
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_elsewhere(path: str, folder: Path) -> bool:
    """Return whether a file lies at an address, or outside of a folder, links followed; one that is
    not there does not."""
    if "://" in path:
        return True
    try:
        found = Path(path).resolve()
        return found.exists() and not found.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return True


def is_builtin(path: Path) -> bool:
    """Return whether a recipe ships with glit."""
    return path in builtin_recipes().values()
