"""``glit doctor``: would a build work here, and how long would it take? ``glit estimate``: a large
one, by a small one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from glit import api
from glit.cli.build import default_recipe
from glit.cli.derived import command, command_of
from glit.cli.options import count
from glit.errors import UserError
from glit.plain import as_plain
from glit.runtime.progress import duration, size
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.doctor.examine import Report
    from glit.doctor.finding import Finding
    from glit.doctor.models import Model
    from glit.pipeline.estimate import BuildEstimate

_SIGNS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "fails": ("fails", "bold red")}


@command
def doctor_command(
    *,
    images: Annotated[str | None, typer.Argument()] = None,
    output: str = ".",
    recipe: str | None = None,
    settings: list[str] | None = None,
    verbose: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Check whether a build would work here; estimate time and disk. Exits 1 if it would fail.

    With IMAGES it builds eight of them in a temporary folder: with the recipe of -r, or with every
    recipe whose models are here.

    Args:
        images: the images to build from. Without it, no time estimate.
        output: the folder or address of the dataset.
        recipe: a built-in recipe or a TOML file. Default: flism if this machine has a GPU and the
            weights, else mini; and times for every recipe whose models are here.
        verbose: show every check, and the models of every recipe.
    """
    from glit.doctor.examine import examine
    from glit.runtime.progress import status_reporter

    with status_reporter(Console(stderr=True, highlight=False), quiet=quiet) as tell:
        report = examine(
            recipe or default_recipe(),
            settings=settings or (),
            images=images,
            output=output,
            all_recipes=recipe is None,
            tell=tell,
        )
    if as_json:
        print(json.dumps(report.as_dict()))
    else:
        _print(report, Console(highlight=False), verbose=verbose)
    if report.fails:
        sys.exit(1)


def _rates(given: list[str] | None) -> dict[str, float]:
    """Stages and samples a second, ``caption=12`` or ``caption=12/s``."""
    found = {}
    for each in given or ():
        name, _, rate = each.partition("=")
        try:
            found[name] = float(rate.removesuffix("/s"))
        except ValueError:
            raise UserError(f"--rate {each}: want STAGE=SAMPLES_PER_SECOND") from None
    return found


@command_of(api.estimate)
def estimate_command(
    *,
    dataset: str,
    images: Annotated[int, typer.Option("-n", "--num", parser=count, metavar="N|10M")],
    gpus: Annotated[str, typer.Option(metavar="N|8xH100")],
    cores: Annotated[int, typer.Option(min=0)],
    price: Annotated[float | None, typer.Option(min=0)],
    rates: Annotated[list[str] | None, typer.Option("--rate", metavar="STAGE=N")],
    as_json: bool = False,
) -> None:
    """Estimate a large build from a small one: hours, money, bytes, files and tokens."""
    found = api.estimate(
        dataset, images=images, gpus=gpus, cores=cores, price=price, rates=_rates(rates)
    )
    if as_json:
        print(json.dumps({**as_plain(found), "cost": found.cost}))
        return
    _print_estimate(found, Console(highlight=False))


def _print_estimate(found: BuildEstimate, console: Console) -> None:
    """Stages, then time, money and sizes."""
    machines = f"{found.gpus} GPUs, {found.cores} cores" if found.gpus else f"{found.cores} cores"
    console.print(f"{found.images} images on {machines}, by the build of {found.pilot_images}:\n")
    table = Table("stage", "place", "samples", "time", "", box=None, padding=(0, 2))
    for stage in found.stages:
        table.add_row(
            stage.stage, stage.place, str(stage.samples), _between(stage.hours), stage.source
        )
    console.print(table)
    console.print(f"\ntime: {_between(found.hours)}; places work at the same time")
    if found.gpu_note:
        console.print(f"note: {visible(found.gpu_note)}", soft_wrap=True, markup=False)
    if found.cost is not None:
        low, high = found.cost
        console.print(f"cost: {low:,.2f} to {high:,.2f}, at {found.price:g} an hour")
    tokens = "" if found.caption_tokens is None else f", {found.caption_tokens} caption tokens"
    console.print(
        f"dataset: {found.shipped} samples, {size(found.data_bytes)} in {found.data_files} "
        f"files{tokens}; {found.work_files} files in work/",
        soft_wrap=True,
    )
    console.print(
        "shorter time: workers are never idle; longer: as idle as in that build; models are loaded",
        soft_wrap=True,
    )


def _between(hours: tuple[float, float]) -> str:
    low, high = (duration(3600 * each) for each in hours)
    return low if low == high else f"{low} to {high}"


def _print(report: Report, console: Console, *, verbose: bool) -> None:
    """The verdict, what to do, and with ``verbose`` every check, model and time."""
    fails = sum(finding.state == "fails" for finding in report.findings)
    problems = f"{fails} {'problem' if fails == 1 else 'problems'} to fix"
    verdict = f"would fail: {problems}." if fails else "would work."
    console.print(f"A build with -r {report.recipe} {verdict}")
    _print_findings([f for f in report.findings if verbose or f.state != "ok"], console)
    _print_models([m for m in report.models if verbose or report.recipe in m.recipes], console)
    shown = [
        p for p in report.paces if verbose or p.seconds is not None or p.recipe == report.recipe
    ]
    if shown:
        times = Table("recipe", "time", box=None, padding=(0, 2))
        for pace in shown:
            times.add_row(pace.recipe, Text(pace.line(report.num_images)))
        console.print()
        console.print(times)
    if not verbose:
        console.print("\nAll checks, models and recipes: --verbose")


def _print_findings(findings: list[Finding], console: Console) -> None:
    """Problems first, then notes."""
    table = Table.grid(padding=(0, 2))
    for each in sorted(findings, key=lambda finding: list(_SIGNS)[::-1].index(finding.state)):
        word, style = _SIGNS[each.state]
        said = Text(visible(each.found), overflow="fold")
        if each.todo:
            place, _, commands = each.todo.partition(": ")
            todo = f"{place}, with the commands below" if " && " in commands else each.todo
            said.append(visible(f"\n→ {todo}"), style="bold" if each.state == "fails" else "")
        table.add_row(Text(word, style=style), each.about, said)
    if findings:
        console.print()
        console.print(table)


def _print_models(models: list[Model], console: Console) -> None:
    shown = Table("model", "here", "size", "recipes", box=None, padding=(0, 2))
    for model in models:
        about = "" if model.here else "about "  # the published size, not measured here
        known = f"{about}{size(model.num_bytes)}" if model.num_bytes else "?"
        here = "yes" if model.here else "no"
        shown.add_row(model.name, here, known, Text(", ".join(model.recipes)))
    console.print()
    console.print(shown)
    if commands := [model.fetch for model in models if model.fetch]:
        console.print("\nTo get the missing models:")
        for command in commands:
            console.print(f"  {command}", soft_wrap=True, markup=False)
