"""``glit doctor``: would a build work here, and what would it take?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from glit.cli.build import default_recipe
from glit.cli.options import JsonOption, QuietOption, RecipeOption, SetOption
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.doctor.examine import Report

_SIGNS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "fails": ("fails", "bold red")}


def doctor_command(
    images: Annotated[
        str | None, typer.Argument(help="What you want to build from; without it, no times.")
    ] = None,
    output: Annotated[
        str, typer.Option("-o", "--output", help="Where the dataset would lie.")
    ] = ".",
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Would a build work here, what would it take, what to do; exit 1 where it would fail.

    With IMAGES it builds eight of them with every recipe whose models are here (with -r, with that
    one alone) in a folder that is gone afterwards.
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
        about = "" if model.here else "about "  # as published, not as it lies here
        known = f"{about}{size(model.num_bytes)}" if model.num_bytes else "?"
        here = "yes" if model.here else "no"
        shown.add_row(model.name, here, known, Text(", ".join(model.recipes)))
    console.print()
    console.print(shown)
    if commands := [model.fetch for model in report.models if model.fetch]:
        console.print("\nTo get those that are not here:")
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
            f"{'thing needs' if fails == 1 else 'things need'} mending (fails, above)."
        )
    else:
        console.print(f"A build with -r {report.recipe} would work.")
