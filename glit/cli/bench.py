"""``glit bench``: benchmarks that you can repeat."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from glit.cli.options import DatasetArgument, JsonOption, QuietOption, SetOption, hold
from glit.runtime.progress import status_reporter
from glit.runtime.terminal import Console
from glit.storage.outputs import local_folder

bench_app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Measure speed, in ratios on one machine."
)

DeviceName = Literal["auto", "cpu", "cuda"]
DeviceOption = Annotated[
    DeviceName, typer.Option("--device", help="auto uses a GPU if there is one.")
]
WeightsName = Literal["random", "mini", "manifest"]


@bench_app.callback()
def _bench() -> None:
    """Measure speed, in ratios on one machine."""


@bench_app.command("lism-flism")
def lism_flism_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder for the results.")],
    images: Annotated[
        str | None, typer.Argument(help="A folder of photographs. Default: drawn scenes.")
    ] = None,
    device: DeviceOption = "auto",
    weights: Annotated[
        WeightsName | None,
        typer.Option(
            "--weights",
            help="mini: embedded models; random: full size, speed only; manifest: the recipes' own."
            " Default: manifest if there are a GPU and the weights, else mini.",
        ),
    ] = None,
    num_images: Annotated[
        int | None,
        typer.Option(
            "--images", min=1, help="Number of images. Default: 8 with mini, else 2; 64 on a GPU."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Counted rounds.")] = 3,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare GOAL's and FAST-GOAL's matching (LISM, FLISM), as published and in glit."""
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


@bench_app.command("pairs")
def pairs_command(
    context: typer.Context,
    output: Annotated[
        str, typer.Option("-o", "--output", help="The folder for scenes and results.")
    ],
    num_scenes: Annotated[int, typer.Option("--scenes", min=2, help="Scenes per seed.")] = 300,
    num_seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds per level.")] = 3,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure how often each rule's pairs are correct, on scenes with known ground truth."""
    from glit.bench.pairs.run import Request, page, run
    from glit.recipes.extras import require
    from glit.runtime.tables import markdown

    require("models", needed_for="glit bench pairs")
    folder = local_folder(output)
    hold(context, folder)
    console = Console(stderr=True, highlight=False)
    request = Request(output=folder, num_scenes=num_scenes, num_seeds=num_seeds)
    report = run(request, _lines(console, quiet=quiet))
    print(json.dumps(report) if as_json else markdown(page(report)))
    console.print(f"wrote pairs.md, pairs.json and calibration.json in {folder}", soft_wrap=True)


@bench_app.command("regions")
def regions_command(
    dataset: DatasetArgument,
    recipe: Annotated[
        str, typer.Option("-r", "--recipe", help="The recipe whose \\[propose] is measured.")
    ],
    overrides: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how many boxes of a dataset with known pairs (glit sample) a proposer finds."""
    from glit.api import open_dataset
    from glit.bench.regions import as_dict, measure, page
    from glit.planning.recipe import load_recipe
    from glit.runtime.tables import show

    console = Console(stderr=as_json, highlight=False)
    loaded = load_recipe(recipe, overrides=overrides or ())
    with status_reporter(console, quiet=quiet) as progress:
        found = measure(open_dataset(dataset), loaded, progress)
    if as_json:
        print(json.dumps(as_dict(found)))
    else:
        show(page(found), console)


@bench_app.command("objectives")
def objectives_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder for runs and tables.")],
    objectives: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            help="An objective, with settings of its own: 'long-clip lambda_short=0'; repeatable. "
            "The others are compared with the first. Default: all.",
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", help="Training scenes; repeatable. Default: 1200."),
    ] = None,
    lrs: Annotated[
        list[float] | None,
        typer.Option(
            "--lr",
            help="A learning rate of the grid; repeatable. Default: 3e-5 to 1e-2; with --train "
            "and --validation, 0.03 to 10 times the recipe's, else the recipe's.",
        ),
    ] = None,
    num_seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Runs at the best learning rate.")
    ] = 3,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            help="Passes over the training set. Default: 3; with --train, the recipe's.",
        ),
    ] = None,
    gallery: Annotated[
        int, typer.Option("--gallery", min=8, help="Test scenes in the gallery.")
    ] = 2000,
    level: Annotated[
        Literal["hard", "varied"],
        typer.Option("--level", help="Of the scenes; varied has short captions too."),
    ] = "varied",
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            help="On scenes: the model that all start from: a built-in one, a folder, a run of "
            "glit train, or a hub id. Default: mini-clip, which hardly sees shapes; mini-matcher "
            "does.",
        ),
    ] = None,
    together: Annotated[
        int,
        typer.Option(
            "--together", min=1, help="Neighbours kept together; 4 puts twins into one batch."
        ),
    ] = 1,
    train: Annotated[
        str | None,
        typer.Option("--train", help="Train on this dataset instead of scenes; needs --test."),
    ] = None,
    test: Annotated[
        str | None, typer.Option("--test", help="The dataset that is searched, with --train.")
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            "--validation", help="Choose learning rates on this dataset; needed for several --lr."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--recipe",
            help="With --train: model and settings, of its tables train and evaluate. "
            "Default: mini.",
        ),
    ] = None,
    overrides: SetOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare objectives on scenes or on your datasets, each at its best learning rate.

    Takes hours; resumable.
    """
    from glit.errors import UserError
    from glit.recipes.extras import require

    require("train", needed_for="glit bench objectives")
    from glit.bench.objectives.run import ALL, WITHOUT_NEGATIVES, Request, run
    from glit.bench.objectives.world import Datasets, Scenes

    if start == "":
        raise UserError("--start: is empty; name a model, or leave it out for mini-clip")
    console = Console(stderr=True, highlight=False)
    folder = local_folder(output)
    own = Scenes()
    parts = {name: min(getattr(own, name), gallery) for name in ("twins", "local", "validation")}
    world = Scenes(level=level, gallery=gallery, start=start or own.start, **parts)
    named = {"objectives": objectives, "sizes": sizes, "lrs": lrs, "epochs": epochs}
    given: dict[str, Any] = {key: value for key, value in named.items() if value}
    if train is None and (test or validation or recipe or overrides):
        raise UserError(
            "--test, --validation, --recipe and --set go with --train, a dataset to train on"
        )
    if train is not None:
        if start is not None:
            raise UserError("--start: goes with scenes; with --train it is --set train.model=MODEL")
        if test is None or sizes:
            raise UserError("--train: add --test with another dataset, and leave out --size")
        if validation is None and len(lrs or ()) > 1:
            raise UserError(
                "--train: add --validation, a third dataset on which the learning rate is chosen, "
                "or one --lr"
            )
        world = Datasets(
            train=train,
            test=test,
            validation=validation,
            recipe=recipe or "mini",
            overrides=tuple(overrides or ()),
        )
        given = world.defaults() | given
        if not objectives and not world.has_negatives:
            given["objectives"] = WITHOUT_NEGATIVES
            left_out = ", ".join(name for name in ALL if name not in WITHOUT_NEGATIVES)
            console.print(f"{train} has no false sentences; left out: {left_out}", soft_wrap=True)
    request = Request(output=folder, num_seeds=num_seeds, together=together, world=world, **given)
    hold(context, request.output)
    print(run(request, _lines(console, quiet=quiet)))
    console.print(f"wrote objectives.md and objectives.json in {request.output}", soft_wrap=True)


@bench_app.command("gpu")
def gpu_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder for the results.")],
    device: DeviceOption = "auto",
    tiny: Annotated[
        bool,
        typer.Option("--tiny", help="Use tiny shapes, to check on any machine that all parts run."),
    ] = False,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure how close glit comes to a GPU's limits, in at most nine minutes."""
    from glit.errors import UserError
    from glit.recipes.extras import require

    for extra in ("models", "sam", "train"):
        require(extra, needed_for="glit bench gpu")
    from glit.bench.gpu.run import page, run
    from glit.models.device import pick_device
    from glit.runtime.tables import show

    folder = local_folder(output).resolve()
    hold(context, folder)
    where = pick_device(device).type
    if where != "cuda" and not tiny:
        raise UserError("glit bench gpu: this machine has no GPU; add --tiny to see the parts run")
    console = Console(stderr=as_json, highlight=False)
    scale = "tiny" if tiny else "full"
    with status_reporter(console, quiet=quiet) as progress:
        report = run(folder, device=where, scale=scale, progress=progress)
    if as_json:
        print(json.dumps(report))
    else:
        show(page(report), console)
    console.print(f"wrote gpu.json and gpu.md in {folder}", soft_wrap=True)
    if any(part["failure"] for part in report["parts"]):
        raise typer.Exit(1)


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
