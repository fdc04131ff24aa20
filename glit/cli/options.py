"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glit.storage.folder_lock import folder_lock

QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RecipeOption = Annotated[
    str | None, typer.Option("-r", "--recipe", help="A built-in recipe's name, or a TOML file.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="table.key=value, as often as you like.")
]
ImageRootOption = Annotated[
    str, typer.Option("--image-root", help="The ingested folder, if images are not inside.")
]


def hold(context: typer.Context, folder: Path) -> None:
    """Hold a folder that a command writes to until the command ends.

    Raises:
        UserError: another process holds it, or it cannot be written to.
    """
    context.with_resource(folder_lock(folder))
