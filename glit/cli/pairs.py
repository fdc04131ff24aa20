"""``glit pairs``: judge pairs in a browser, calibrate on the verdicts, and correct by hand."""

from __future__ import annotations

import getpass
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glit import api
from glit.cli.options import (
    DatasetArgument,
    ImageRootOption,
    JsonOption,
    QuietOption,
    SetOption,
)
from glit.errors import UserError
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.label.precision import Precision
    from glit.runtime.local_server import Site

_HELP = "Judge pairs by eye; calibrate on the verdicts; correct a dataset by hand."
pairs_app = typer.Typer(add_completion=False, no_args_is_help=True, help=_HELP)

VerdictsOption = Annotated[
    Path,
    typer.Option("--verdicts", help="The JSON Lines file of your verdicts; one line per answer."),
]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")
]


@pairs_app.callback()
def _pairs() -> None:
    """Judge pairs by eye; calibrate on the verdicts; correct a dataset by hand."""


@pairs_app.command("label")
def label_command(
    dataset: DatasetArgument,
    verdicts: VerdictsOption,
    num: Annotated[int, typer.Option("--num", min=1, help="Number of pairs, one per image.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for choosing the pairs.")] = 0,
    port: PortOption = 0,
) -> None:
    """Show pairs in a browser on this machine and record your verdicts. Ctrl-C ends it."""
    from glit.dataset.reader import Dataset
    from glit.label.server import LabelSite, Questions

    questions = Questions(Dataset(dataset), verdicts, num=num, seed=seed)
    after = f"verdicts are in {verdicts}; glit pairs calibrate uses them"
    _serve(LabelSite(questions), port, what=f"{len(questions)} pairs", after=after)


def _serve(site: Site, port: int, *, what: str, after: str) -> None:
    """Serve a page until Ctrl-C."""
    from glit.runtime.local_server import address_of, loopback_server

    console = Console(stderr=True, highlight=False)
    with loopback_server(site, port=port) as server:
        console.print(f"{what} at {address_of(server)} (Ctrl-C when done)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print(after)


@pairs_app.command("calibrate")
def calibrate_command(
    dataset: Annotated[str, typer.Argument(help="The dataset whose pairs you judged.")],
    verdicts: VerdictsOption,
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibration file to write.")],
    recipe: Annotated[
        str | None,
        typer.Option("-r", "--recipe", help="The recipe of the rule. Default: the dataset's own."),
    ] = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit pair probabilities to your verdicts, for the dataset's rule or another one."""
    from glit.errors import InputError

    report = api.calibrate(dataset, verdicts, recipe=recipe, settings=settings or ())
    kept = json.dumps(report.calibration.as_dict(), indent=2, sort_keys=True)
    try:
        output.write_text(kept + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"-o {output}: {error.strerror or error}") from error
    if as_json:
        print(json.dumps({**asdict(report), "precision": report.precision.as_json()}))
        return
    for name, quality in (("pairs", report.pairs), ("sentences", report.sentences)):
        if quality is None:
            print(f"{name}: no sentence was judged false, so support is not fitted")
            continue
        print(
            f"{name}: {quality.right} of {quality.cases} right; on verdicts held back: average "
            f"precision {quality.average_precision:.3f}, {quality.removed:.0%} of the wrong "
            f"removed at 95 % of the right kept, calibration error {quality.calibration_error:.3f}"
        )
    if report.left_out:
        print(f"{report.left_out} verdicts are of regions that this rule does not choose")
    _print_precision(report.precision)
    print(f"wrote {output}; use it: --set pair.calibration={output}")


@pairs_app.command("correct")
def correct_command(
    dataset: DatasetArgument,
    corrections: Annotated[
        Path,
        typer.Option(
            "--corrections", help="The JSON Lines file of corrections; one line per step."
        ),
    ],
    by: Annotated[str, typer.Option("--by", help="Who corrects. Default: your login name.")] = "",
    where: Annotated[
        str, typer.Option("--where", help="Show only samples that meet this SQL condition.")
    ] = "",
    port: PortOption = 0,
    image_root: ImageRootOption = "",
) -> None:
    """Open a page on this machine to correct boxes, sentences and pairs. Ctrl-C ends it."""
    from glit.dataset.reader import Dataset
    from glit.label.correct_server import CorrectSite, Samples

    opened = Dataset(dataset, image_root=image_root)
    samples = Samples(opened, corrections, by=by.strip() or _login(), where=where)
    if samples.journal.cut:
        print(
            f"{corrections}: removed an unfinished last line; its step was not saved",
            file=sys.stderr,
        )
    after = f"corrections are in {corrections}; glit pairs apply writes the corrected dataset"
    what = f"{len(samples)} samples, {samples.num_right()} of them right so far,"
    _serve(CorrectSite(samples), port, what=what, after=after)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise UserError("--by: this machine does not know your name; give one") from error


@pairs_app.command("apply")
def apply_command(
    dataset: Annotated[str, typer.Argument(help="The dataset that was corrected.")],
    corrections: Annotated[
        list[Path],
        typer.Option("--corrections", help="A file of glit pairs correct; repeatable."),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    matcher: Annotated[
        str,
        typer.Option("--matcher", help="The dataset's matcher, if its name does not find it."),
    ] = "",
    image_root: ImageRootOption = "",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the dataset with corrections, and print how many pairs people left as right."""
    from glit.runtime.progress import StageProgress

    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet or as_json) as progress:
        applied = api.apply_corrections(
            dataset, output, corrections, matcher=matcher, image_root=image_root,
            progress=progress,
        )  # fmt: skip
    for warning in applied.warnings:
        print(visible(warning), file=sys.stderr)
    if as_json:
        print(json.dumps({**asdict(applied), "precision": applied.precision.as_json()}))
        return
    done = ", ".join(f"{number} {kind}" for kind, number in applied.counts.items() if number)
    said = f"{applied.samples} samples ({done or 'nothing changed'})"
    print(f"{said}, {applied.dropped} dropped: {output}")
    _print_precision(applied.precision)


def _print_precision(found: Precision) -> None:
    from glit.label.precision import precision_lines

    for line in precision_lines(found):
        print(visible(line))
