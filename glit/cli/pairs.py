"""``glit pairs``: judge pairs in a browser, and calibrate pair probabilities on the verdicts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glit import api
from glit.cli.options import DatasetArgument, JsonOption, SetOption
from glit.runtime.terminal import Console

pairs_app = typer.Typer(no_args_is_help=True, help="Judge pairs by eye; calibrate on the verdicts.")

VerdictsOption = Annotated[
    Path,
    typer.Option("--verdicts", help="The JSON Lines file of your verdicts; one line per answer."),
]


@pairs_app.callback()
def _pairs() -> None:
    """Judge pairs by eye; calibrate on the verdicts."""


@pairs_app.command("label")
def label_command(
    dataset: DatasetArgument,
    verdicts: VerdictsOption,
    num: Annotated[int, typer.Option("--num", min=1, help="Number of pairs, one per image.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for choosing the pairs.")] = 0,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 0,
) -> None:
    """Show pairs in a browser on this machine and record your verdicts. Ctrl-C ends it."""
    from glit.dataset.reader import Dataset
    from glit.label.server import LabelSite, Questions
    from glit.runtime.local_server import address_of, loopback_server

    questions = Questions(Dataset(dataset), verdicts, num=num, seed=seed)
    console = Console(stderr=True, highlight=False)
    with loopback_server(LabelSite(questions), port=port) as server:
        console.print(f"{len(questions)} pairs at {address_of(server)} (Ctrl-C when done)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print(f"verdicts are in {verdicts}; glit pairs calibrate uses them")


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
        print(json.dumps(asdict(report)))
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
    print(f"wrote {output}; use it: --set pair.calibration={output}")
