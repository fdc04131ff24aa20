"""``audit``."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from glit import api
from glit.cli.derived import command_of
from glit.cli.options import existing, progress_bar
from glit.runtime.terminal import Console, one_line, visible
from glit.storage.outputs import local_file

if TYPE_CHECKING:
    from glit.inspection.findings import AuditReport

_MOST_LICENCES = 8


@command_of(api.audit)
def audit_command(
    *,
    what: Annotated[str, typer.Argument(callback=existing)],
    images: Annotated[str, typer.Option(callback=existing)],
    page: Annotated[str | None, typer.Option("-o", "--output")],
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Look for faults in a dataset or a published file; exit code 1 if one is an error."""
    with progress_bar(quiet=quiet or as_json) as progress:
        found = api.audit(what, images=images, page=page, progress=progress, **given)
    if as_json:
        print(json.dumps(_plain(found)))
    else:
        _print(found, Console(highlight=False))
        if page is not None:
            print(local_file(page).resolve().as_uri())
    if found.has_errors:
        raise typer.Exit(1)


def _plain(report: AuditReport) -> dict[str, Any]:
    found = asdict(report)
    for finding in found["findings"]:
        for example in finding["examples"]:
            del example["picture"]
    return {
        **found, "skipped": dict(report.skipped), "licences": dict(report.licences),
        "has_errors": report.has_errors,
    }  # fmt: skip


def _print(report: AuditReport, console: Console) -> None:
    from glit.inspection.inspect import NOTHING

    images = "1 image" if report.images == 1 else f"{report.images} images"
    console.print(visible(f"{report.what}: {images}, format {report.format}"), soft_wrap=True)
    if report.findings:
        table = Table("", "kind", "at fault", "share")
        table.add_column("first example", overflow="fold", min_width=24)
        for each in report.findings:
            first = each.examples[0]
            example = one_line(f"{first.name}: {first.detail}"[:160])
            counted = f"{each.at_fault} of {each.looked_at} {each.of}"
            table.add_row(each.severity, each.code, counted, _percent(each.share), example)
        console.print(table)
    for each in report.findings:
        if each.repair:
            words = shlex.split(each.repair)[1]
            console.print(f"{each.code}, glit {words}: {visible(each.repair)}", soft_wrap=True,
                          markup=False)  # fmt: skip
    for each in report.estimates:
        console.print(
            f"{each.of}: {_percent(each.share)} {each.claim}, between "
            f"{_percent(each.at_least)} and {_percent(each.at_most)} ({each.method})",
            soft_wrap=True, markup=False,
        )  # fmt: skip
    for licence, number in report.licences[:_MOST_LICENCES]:
        share = _percent(number / report.images)
        console.print(visible(f"licence {licence}: {share}"), soft_wrap=True, markup=False)
    if report.clean:
        console.print(f"no fault: {', '.join(report.clean)}", soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for code, why in report.skipped:
        if why != NOTHING:
            reasons.setdefault(why, []).append(code)
    told = "; ".join(f"{', '.join(codes)} ({why})" for why, codes in reasons.items())
    if told:
        console.print(visible(f"not looked for: {told}"), soft_wrap=True, markup=False)


def _percent(share: float) -> str:
    """A share in per cent, with a digit that shows it.

    >>> _percent(0.1234), _percent(0.0004), _percent(0.0)
    ('12 %', '0.04 %', '0 %')
    """
    number = 100 * share
    return f"{number:.0f} %" if number >= 10 or not number else f"{number:.1g} %"
