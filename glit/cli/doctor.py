"""``glit doctor``: check whether a build would work here, and estimate its time."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from glit.cli.build import default_recipe
from glit.cli.options import JsonOption, QuietOption, SetOption
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.doctor.examine import Report

_SIGNS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "fails": ("fails", "bold red")}


def doctor_command(
    images: Annotated[
        str | None, typer.Argument(help="The images to build from. Without it, no time estimate.")
    ] = None,
    output: Annotated[
        str, typer.Option("-o", "--output", help="The folder or address of the dataset.")
    ] = ".",
    recipe: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--recipe",
            help="A built-in recipe or a TOML file. Default: flism if this machine has a GPU and "
            "the weights, else mini; and times for every recipe whose models are here.",
        ),
    ] = None,
    overrides: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check whether a build would work here, and estimate its time. Exits 1 if it would fail.

    With IMAGES it builds eight of them in a temporary folder: with the recipe of -r, or with every
    recipe whose models are here.
    """
    from glit.doctor.examine import examine
    from glit.runtime.progress import status_reporter

    with status_reporter(Console(stderr=True, highlight=False), quiet=quiet) as tell:
        report = examine(
            recipe or default_recipe(),
            settings=overrides or (),
            images=images,
            output=output,
            all_recipes=recipe is None,
            tell=tell,
        )
    if as_json:
        print(json.dumps(report.as_dict()))
    else:
        _print(report, Console(highlight=False))
    if report.fails:
        sys.exit(1)


def _print(report: Report, console: Console) -> None:
    from glit.runtime.progress import size

    table = Table.grid(padding=(0, 2))
    for each in report.findings:
        word, style = _SIGNS[each.state]
        said = Text(visible(each.found), overflow="fold")
        if each.todo:
            said.append(visible(f"\n→ {each.todo}"), style="bold" if each.state == "fails" else "")
        table.add_row(Text(word, style=style), each.about, said)
    console.print(table)
    shown = Table("model", "here", "size", "recipes", box=None, padding=(0, 2))
    for model in report.models:
        about = "" if model.here else "about "  # the published size, not measured here
        known = f"{about}{size(model.num_bytes)}" if model.num_bytes else "?"
        here = "yes" if model.here else "no"
        shown.add_row(model.name, here, known, Text(", ".join(model.recipes)))
    console.print()
    console.print(shown)
    if commands := [model.fetch for model in report.models if model.fetch]:
        console.print("\nTo get the missing models:")
        for command in commands:
            console.print(f"  {command}", soft_wrap=True, markup=False)
    if report.paces:
        times = Table("recipe", "time", box=None, padding=(0, 2))
        for pace in report.paces:
            times.add_row(pace.recipe, Text(pace.line(report.num_images)))
        console.print()
        console.print(times)
    console.print()
    if report.fails:
        fails = sum(finding.state == "fails" for finding in report.findings)
        console.print(
            f"A build with -r {report.recipe} would fail: {fails} "
            f"{'problem' if fails == 1 else 'problems'} to fix (marked fails above)."
        )
    else:
        console.print(f"A build with -r {report.recipe} would work.")
