"""Options that several commands share, and checks on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from glit.errors import UserError

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RecipeOption = Annotated[
    str | None, typer.Option("-r", "--recipe", help="A built-in recipe's name, or a TOML file.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="table.key=value, as often as you like.")
]


def local_folder(output: str) -> Path:
    """Where to write.

    Raises:
        UserError: it is an address, which would become a folder of that name.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", output):
        raise UserError(
            f"-o {output}: an address, but results are written to local folders only so far; "
            "write to a folder and copy it there"
        )
    return Path(output)
