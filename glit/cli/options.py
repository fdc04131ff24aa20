"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glit.storage.folder_lock import folder_lock

QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the result only, no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DatasetArgument = Annotated[str, typer.Argument(help="The dataset's folder or address.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a recipe key: table.key=value; repeatable."),
]
ImageRootOption = Annotated[
    str, typer.Option("--image-root", help="The images' folder, if the dataset stores paths only.")
]


def hold(context: typer.Context, folder: Path) -> None:
    """Hold a folder that a command writes to until the command ends.

    Raises:
        UserError: another process holds it, or it cannot be written to.
    """
    context.with_resource(folder_lock(folder))
