"""``glit bench``: benchmarks that you can repeat."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from glit.cli.derived import command
from glit.cli.options import hold
from glit.errors import UserError
from glit.runtime.progress import status_reporter
from glit.runtime.terminal import Console
from glit.storage.outputs import local_folder

bench_command = typer.Typer(add_completion=False, no_args_is_help=True)

DeviceName = Literal["auto", "cpu", "cuda"]
DeviceOption = Annotated[
    DeviceName, typer.Option("--device", help="auto uses a GPU if there is one.")
]
WeightsName = Literal["random", "mini", "manifest"]


@bench_command.callback()
def _bench() -> None:
    """Measure speed and compare objectives, in ratios on one machine."""


@bench_command.command("lism-flism")
@command
def lism_flism_command(
    *,
    context: typer.Context,
    output: str,
    images: Annotated[str | None, typer.Argument()] = None,
    device: DeviceOption = "auto",
    weights: WeightsName | None = None,
    num_images: Annotated[int | None, typer.Option("--num", min=1)] = None,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Compare GOAL's and FAST-GOAL's matching (LISM, FLISM), as published and in glit.

    Args:
        output: the folder for the results.
        images: a folder of photographs. Default: drawn scenes.
        weights: ``mini``: embedded models; random: full size, speed only; manifest: the recipes'
            own. Default: manifest if there are a GPU and the weights, else mini.
        num_images: number of images. Default: 8 with mini, else 2; 64 on a GPU.
        repeats: measured rounds, after a first one.
    """
    from glit.bench.lism_flism.report import page
    from glit.bench.lism_flism.run import Request, run, write
    from glit.runtime.tables import show

    folder = local_folder(output)
    console = Console(stderr=as_json, highlight=False)
    hold(context, folder)
    chosen = weights or _default_weights(console, device)
    request = Request(
        images=images, weights=chosen, device=device, num_images=num_images, repeats=repeats
    )
    with status_reporter(console, quiet=quiet) as progress:
        report = run(request, progress)
    paths = write(report, folder)
    if as_json:
        print(json.dumps(report))
        return
    show(page(report), console)
    for path in paths:
        console.print(f"wrote {path}", soft_wrap=True)


@bench_command.command("objectives")
@command
def objectives_command(
    *,
    context: typer.Context,
    output: str,
    objectives: Annotated[list[str] | None, typer.Option("--objective")] = None,
    lrs: Annotated[list[float] | None, typer.Option("--lr")] = None,
    num_seeds: Annotated[int, typer.Option("--seeds", min=1)] = 3,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    together: Annotated[int, typer.Option("--neighbours", min=1)] = 1,
    train: str,
    test: str,
    validation: str | None = None,
    recipe: str = "mini",
    settings: list[str] | None = None,
    quiet: bool = False,
) -> None:
    """Compare objectives on your datasets, each at its best learning rate.

    Takes hours; resumable.

    Args:
        output: the folder for runs and tables.
        objectives: an objective, with settings of its own: 'long-clip lambda_short=0'. The others
            are compared with the first. Default: all.
        lrs: a learning rate of the grid. Default: with ``validation``, 0.03 to 10 times the
            recipe's, else the recipe's.
        num_seeds: runs at the best learning rate.
        epochs: passes over the training set. Default: the recipe's.
        together: put N neighbouring samples into one batch.
        train: the dataset to train on.
        test: the test dataset.
        validation: choose learning rates on this dataset; needed for several ``lrs``.
        recipe: the recipe that gives model and settings.
    """
    from glit.recipes.extras import require

    require("train", needed_for="glit bench objectives")
    from glit.bench.objectives.datasets import Datasets
    from glit.bench.objectives.run import ALL, WITHOUT_NEGATIVES, ComparisonRequest, run

    if validation is None and len(lrs or ()) > 1:
        raise UserError(
            "--train: add --validation, a third dataset on which the learning rate is chosen, "
            "or one --lr"
        )
    console = Console(stderr=True, highlight=False)
    folder = local_folder(output)
    datasets = Datasets(
        train=train,
        test=test,
        validation=validation,
        recipe=recipe,
        overrides=tuple(settings or ()),
    )
    chosen = tuple(objectives or ALL)
    if not objectives and not datasets.has_negatives:
        chosen = WITHOUT_NEGATIVES
        left_out = ", ".join(name for name in ALL if name not in WITHOUT_NEGATIVES)
        console.print(f"{train} has no false sentences; left out: {left_out}", soft_wrap=True)
    request = ComparisonRequest(
        output=folder, datasets=datasets, objectives=chosen, lrs=lrs or datasets.lrs(),
        num_seeds=num_seeds, epochs=epochs, together=together,
    )  # fmt: skip
    hold(context, request.output)
    print(run(request, _lines(console, quiet=quiet)))
    console.print(f"wrote objectives.md and objectives.json in {request.output}", soft_wrap=True)


def _lines(console: Console, *, quiet: bool) -> Callable[[str], None]:
    """Lines that stay, a measurement each; none if quiet."""
    return lambda text: None if quiet else console.print(text, soft_wrap=True)


def _default_weights(console: Console, device: DeviceName) -> WeightsName:
    """``manifest`` if the machine has a GPU and the papers' weights, else ``mini``."""
    from glit.bench.lism_flism.models import at_hand
    from glit.models.device import pick_device

    if pick_device(device).type == "cuda" and at_hand():
        return "manifest"
    console.print(
        "No GPU with the weights found: using --weights mini, the embedded models. For the papers' "
        "models without their weights (speed only), add --weights random.",
        soft_wrap=True,
    )
    return "mini"
