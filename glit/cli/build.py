"""``glit build``, ``glit add``, ``glit retry`` and ``glit lock``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit.cli.options import DatasetArgument, JsonOption, QuietOption, SetOption
from glit.errors import UserError
from glit.executors import ExecutorName, open_executor
from glit.importers import IMPORTERS
from glit.runtime.terminal import Console, visible
from glit.storage.outputs import local_file, output_folder

if TYPE_CHECKING:
    from glit.executors.protocols import Executor
    from glit.runtime.progress import StageProgress

ExecutorOption = Annotated[
    ExecutorName,
    typer.Option("--executor", help="ray, or local to run everything in this process."),
]

RayAddressOption = Annotated[
    str | None,
    typer.Option("--ray-address", help="HOST:PORT of a Ray cluster; default: RAY_ADDRESS."),
]


def build_command(
    images: Annotated[
        str, typer.Argument(help="A folder, glob, list file, tar, Parquet file or address.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The dataset's folder or address.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--recipe",
            help="A built-in recipe or a TOML file. Default: flism (with --captions: captions) if "
            "this machine has a GPU and the weights, else mini.",
        ),
    ] = None,
    overrides: SetOption = None,
    captions: Annotated[
        str | None,
        typer.Option("--captions", help="Your own captions: a .jsonl, .csv or .parquet file."),
    ] = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Use only the first N images.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Rebuild a finished dataset if the recipe or images differ."
        ),
    ] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Use exactly the models recorded by glit lock.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset from images. Run the same command again to resume."""
    from glit.pipeline.lock import lock_path, read_lock
    from glit.pipeline.run import BuildRequest, build
    from glit.stages.recipe import load_recipe

    folder = output_folder(output)
    console = Console(stderr=as_json, highlight=False)
    name = recipe or default_recipe(captions is not None)
    if recipe is None and name == "mini":
        console.print(
            "No GPU with the weights found: using the recipe 'mini'. Its models understand only "
            "glit's procedural scenes; for photographs choose -r laptop or -r flism."
        )
    settings = list(overrides or [])
    if captions is not None:
        settings = ["caption.backend=provided", *settings]
    request = BuildRequest(
        images=images,
        output=folder,
        recipe=load_recipe(name, overrides=settings),
        captions=captions,
        limit=limit,
        replace=replace,
        lock=read_lock(lock_path(name)) if locked else None,
    )
    with _at_work(executor, ray_address, console, quiet=quiet) as (runner, progress):
        manifest = build(request, runner, progress)
    _report(manifest, folder, console, as_json=as_json)


def add_command(
    dataset: DatasetArgument,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Add only the first N new images.")
    ] = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add the images that are new in the folder since the build. Run again to resume."""
    from glit.pipeline.add import add

    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)
    with _at_work(executor, ray_address, console, quiet=quiet) as (runner, progress):
        added = add(folder, runner, progress, limit=limit)
    counts, new = added.manifest["counts"], added.balance
    if as_json:
        print(json.dumps({"dataset": folder, "counts": counts, "added": new}))
        return
    if new is None:
        console.print(f"{folder}: no new images in {added.images}", soft_wrap=True)
        return
    _report(added.manifest, folder, console, as_json=False)
    console.print(f"added: {_balance(new)}", soft_wrap=True)


def retry_command(
    dataset: DatasetArgument,
    stage: Annotated[
        str | None, typer.Option("--stage", help="Retry only drops of this stage.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Retry only drops with this reason.")
    ] = None,
    overrides: SetOption = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Process the dropped samples again and merge the ones that succeed."""
    from glit.pipeline.retry import retry

    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)
    with _at_work(executor, ray_address, console, quiet=quiet) as (runner, progress):
        manifest = retry(
            folder, runner, progress, stage=stage, reason=reason, settings=overrides or ()
        )
    _report(manifest, folder, console, as_json=as_json)


@contextlib.contextmanager
def _at_work(
    executor: ExecutorName, ray_address: str | None, console: Console, *, quiet: bool
) -> Iterator[tuple[Executor, StageProgress]]:
    """Open the executor and the progress bar of a command."""
    from glit.runtime.progress import StageProgress

    own_process(executor)
    with (
        open_executor(executor, address=ray_address) as runner,
        StageProgress(console, quiet=quiet) as progress,
    ):
        yield runner, progress


def own_process(executor: ExecutorName) -> None:
    """Let stages in this process keep freed memory; a command owns its process."""
    if executor == "local":
        from glit.executors.process import keep_freed_memory

        keep_freed_memory()


def lock_command(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe or a TOML file.")],
    overrides: SetOption = None,
) -> None:
    """Record the models of a recipe on this machine, for glit build --locked.

    Writes RECIPE.lock.json beside the recipe, or into this folder for a built-in recipe.
    """
    from glit.pipeline.lock import lock_path, lock_text
    from glit.pipeline.plan import find_models
    from glit.stages.recipe import load_recipe

    loaded = load_recipe(recipe, overrides=overrides or [])
    models = find_models(loaded)
    path = lock_path(recipe)
    try:
        path.write_text(lock_text(loaded.name, models), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot write there ({error.strerror or error})") from error
    for role, model in sorted(models.items()):
        print(f"{role}: {model.identity()['name']} at {model.revision}, sha256 {model.sha256}")
    print(f"wrote {path}")


def default_recipe(has_captions: bool = False) -> str:
    """``flism`` (or ``captions``) if the machine has a GPU and the weights, else ``mini``."""
    from glit.backends.device import best_device
    from glit.backends.weights import is_here

    if best_device() == "cuda":
        wanted = ["yolos-base", "clip-vit-b-16", *([] if has_captions else ["llava-next-7b"])]
        if all(is_here(name) for name in wanted):
            return "captions" if has_captions else "flism"
    return "mini"


def _report(manifest: dict[str, Any], dataset: str, console: Console, *, as_json: bool) -> None:
    counts = manifest["counts"]
    if as_json:
        print(json.dumps({"dataset": dataset, "counts": counts}))
        return
    console.print(
        f"{dataset}: {_balance(counts)}"
        + (f" ({counts['without_pair']} without a pair)" if counts["without_pair"] else ""),
        soft_wrap=True,
    )
    for key, number in counts["drops"].items():
        console.print(f"  {number:>6} {key}")


def _balance(counts: dict[str, Any]) -> str:
    return (
        f"{counts['ingested']} images = {counts['shipped']} shipped + "
        f"{counts['dropped']} dropped + {counts['duplicates']} duplicates"
    )


def import_command(
    annotations: Annotated[
        Path, typer.Argument(help="The annotations, a file or folder as published.")
    ],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(IMPORTERS)}.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The .jsonl file to write.")],
    images: Annotated[Path | None, typer.Option("--images", help="The image folder.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Parts, joined by +. Default: all.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Convert published captions to a file for glit build --captions. Lists missing images."""
    from glit.importers import import_captions
    from glit.runtime.progress import StageProgress

    path = local_file(output)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        found = import_captions(
            form, annotations, path, images=images, split=split, progress=progress
        )
    print(f"{found.captions} captions: {path}")
    if found.without:
        images_have = "1 image has" if found.without == 1 else f"{found.without} images have"
        print(f"{images_have} no caption")
    for name in found.missing:
        print(visible(f"missing: {name}"), file=sys.stderr)
    if found.missing:
        number = len(found.missing)
        images_are = "1 image is" if number == 1 else f"{number} images are"
        print(f"{images_are} missing; listed above", file=sys.stderr)
