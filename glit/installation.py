"""The distribution that this copy of glit was installed from, and the command that adds extras."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "glit-datasets"
"""The name on the package index. There, ``glit`` is another program."""
_IMPORT = "glit"
_COMMAND = "glit.cli.main:main"
_ROOT = Path(__file__).resolve().parents[1]


def install_command(*extras: str) -> str:
    """The shell command that adds extras to this installation.

    A checkout is installed again as it is, a wheel or an address from where it came, and everything
    else from the package index.
    """
    if "mini" in extras and checkout() is None:  # not on the package index; a checkout has them
        rest = [extra for extra in extras if extra != "mini"]
        models = f"{_installer()} ./glit/mini (in a checkout of glit)"
        return f"{install_command(*rest)} && {models}" if rest else models
    wanted = f"[{','.join(dict.fromkeys(extras))}]" if extras else ""
    if (folder := checkout()) is not None:
        here = os.path.relpath(folder) if folder == Path.cwd() else str(folder)
        return f"{_installer()} -e {_quoted(here + wanted)}"
    origin = _origin()
    source = f" @ {origin}" if origin else ""
    return f"{_installer()} {_quoted(DISTRIBUTION + wanted + source)}"


def checkout() -> Path | None:
    """The folder of the source tree that glit runs from; None if it was installed by copy."""
    try:
        text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return None
    return _ROOT if f'name = "{DISTRIBUTION}"' in text else None


def other_program() -> str:
    """Return a line about another distribution named glit in this environment; empty if there is
    none.

    It has a package and a command of the same name, so one of the two overwrites the other.
    """
    found = _distribution(_IMPORT)
    if found is None or any(entry.value == _COMMAND for entry in found.entry_points):
        return ""
    again = install_command().replace(" install", " install --force-reinstall --no-deps", 1)
    return (
        f"{_IMPORT} {found.version}, which is installed too, is another program and overwrites "
        f"files of {DISTRIBUTION}; run: {_installer('uninstall')} {_IMPORT} && {again}"
    )


def requirements() -> list[str]:
    """The requirements of glit and its extras; empty if its distribution is not installed."""
    found = _distribution(DISTRIBUTION)
    return list(found.requires or []) if found is not None else []


def described() -> str:
    """A description of the installation, for people: ``glit-datasets from a checkout``."""
    if checkout() is not None:
        return f"{DISTRIBUTION} from a checkout"
    origin = _origin()
    return f"{DISTRIBUTION} from {origin}" if origin else DISTRIBUTION


@cache
def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _origin() -> str:
    """The address of the wheel, folder or repository it was installed from; else empty.

    A file that is gone counts as none.
    """
    found = _distribution(DISTRIBUTION)
    text = found.read_text("direct_url.json") if found is not None else None
    try:
        known = json.loads(text or "{}")
        address = str(known["url"])
    except (ValueError, KeyError, TypeError):
        return ""
    if vcs := known.get("vcs_info"):
        return f"{vcs.get('vcs', 'git')}+{address}@{vcs.get('commit_id', '')}".rstrip("@")
    parts = urlsplit(address)
    is_gone = parts.scheme == "file" and not os.path.exists(url2pathname(parts.path))
    return "" if is_gone else address


def _installer(verb: str = "install") -> str:
    """``pip install``, or uv's if the environment has no pip, as uv makes them."""
    if importlib.util.find_spec("pip") is not None:
        return f"pip {verb}"
    is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return f"uv pip {verb}" + ("" if is_active else f" --python {shlex.quote(sys.executable)}")


def _quoted(requirement: str) -> str:
    return requirement if requirement == DISTRIBUTION else f"'{requirement}'"
