"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
