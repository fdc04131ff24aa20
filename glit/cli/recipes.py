"""``glit recipes``: the built-in recipes, and what each needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glit.cli.derived import command
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.doctor.needs import Needs


@command
def recipes_command(
    *,
    recipe: Annotated[str | None, typer.Argument()] = None,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """List the recipes and their missing models and packages, or print one recipe in full.

    Nothing is downloaded. A recipe that is shown whole is a TOML file: save it, change it, and give
    the file as -r.

    Args:
        recipe: a built-in recipe or a TOML file. Without it, a list of all.
    """
    from glit.doctor.needs import all_needs, as_toml, needs_of

    console = Console(highlight=False)
    if recipe is None:
        found = all_needs()
        if as_json:
            print(json.dumps([asdict(each) for each in found]))
            return
        for what, verb in (("build", "glit build IMAGES -o DATASET -r NAME"),
                           ("train", "glit train DATASET -o RUN -r NAME")):  # fmt: skip
            console.print(f"\n{verb}\n", style="bold", markup=False)
            _list([each for each in found if each.what == what], console)
        console.print("\nOne recipe, whole: glit recipes NAME. A build's time: glit doctor IMAGES")
        return
    found = needs_of(recipe, settings or ())
    if as_json:
        print(json.dumps({**asdict(found), "toml": as_toml(recipe, settings or ())}))
        return
    for line in _about(found):
        print(visible(f"# {line}"))
    print(f"\n{as_toml(recipe, settings or ())}", end="")


def _list(recipes: list[Needs], console: Console) -> None:
    from rich.table import Table

    table = Table("recipe", "still needs", "", box=None, padding=(0, 2))
    for each in recipes:
        table.add_row(each.name, each.line or "nothing", each.about)
    console.print(table)


def _about(found: Needs) -> list[str]:
    from glit.runtime.progress import size

    lines = [f"{found.name}: {found.about}"]
    for model in found.models:
        known = f", {size(model.num_bytes)}" if model.num_bytes else ""
        here = "here" if model.here else f"not here; to get it: {model.fetch or '?'}"
        lines.append(f"model {model.name}{known}: {here}")
    if found.extras:
        lines.append(f"extras: {', '.join(found.extras)}")
    if found.install:
        lines.append(found.install)
    return lines
