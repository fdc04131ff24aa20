"""The distribution of glit, and the command that adds extras to it."""

from __future__ import annotations

from pathlib import Path

DISTRIBUTION = "glit-datasets"
"""The name on the package index. There, ``glit`` is another program."""
_ROOT = Path(__file__).resolve().parents[1]


def install_command(*extras: str) -> str:
    """Return the shell command that adds extras; a checkout is installed again as it is, and has
    the mini models, which no package index has."""
    if "mini" in extras and not is_checkout():
        rest = [extra for extra in extras if extra != "mini"]
        models = "pip install ./glit/mini (in a checkout of glit)"
        return f"{install_command(*rest)} && {models}" if rest else models
    wanted = f"[{','.join(dict.fromkeys(extras))}]"
    if not is_checkout():
        return f"pip install '{DISTRIBUTION}{wanted}'"
    return f"pip install -e '{'.' if Path.cwd() == _ROOT else _ROOT}{wanted}'"


def is_checkout() -> bool:
    """Return whether glit runs from its source tree, and not from an installed copy."""
    try:
        text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
    return f'name = "{DISTRIBUTION}"' in text
