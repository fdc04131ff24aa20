"""``glit build``, ``glit add``, ``glit retry`` and ``glit lock``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit.cli.options import JsonOption, QuietOption, RecipeOption, SetOption
from glit.errors import UserError
from glit.executors import ExecutorName, open_executor
from glit.importers import IMPORTERS
from glit.runtime.terminal import Console, visible
from glit.storage.outputs import local_file, output_folder

if TYPE_CHECKING:
    from glit.executors.protocols import Executor
    from glit.runtime.progress import StageProgress

ExecutorOption = Annotated[
    ExecutorName, typer.Option("--executor", help="ray, or local for everything in one process.")
]

RayAddressOption = Annotated[
    str | None,
    typer.Option("--ray-address", help="A running Ray cluster: HOST:PORT; else RAY_ADDRESS."),
]


def build_command(
    images: Annotated[
        str, typer.Argument(help="A folder, glob, list, tar or Parquet file; or an address.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The dataset's folder or address.")],
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    captions: Annotated[
        str | None, typer.Option("--captions", help="Your own captions: .jsonl, .csv, .parquet.")
    ] = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first N images.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Rebuild a finished dataset of another recipe.")
    ] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Take the models of glit lock's file, no others.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset from images; run again to continue."""
    from glit.pipeline.lock import lock_path, read_lock
    from glit.pipeline.run import BuildRequest, build
    from glit.stages.recipe import load_recipe

    folder = output_folder(output)
    console = Console(stderr=as_json, highlight=False)
    name = recipe or default_recipe(captions is not None)
    if recipe is None and name == "mini":
        console.print(
            "No GPU with weights at hand: taking the recipe 'mini'. Its models understand only "
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
    dataset: Annotated[str, typer.Argument(help="The dataset's folder.")],
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first N new images.")
    ] = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add the images that came into its folder since a dataset was built; run again to continue."""
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
    dataset: Annotated[str, typer.Argument(help="The dataset's folder.")],
    stage: Annotated[str | None, typer.Option("--stage", help="Only drops of this stage.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only this reason.")] = None,
    overrides: SetOption = None,
    executor: ExecutorOption = "ray",
    ray_address: RayAddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Try dropped samples once more and merge what succeeds."""
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
    """Where a command's stages run, and what tells of them."""
    from glit.runtime.progress import StageProgress

    own_process(executor)
    with (
        open_executor(executor, address=ray_address) as runner,
        StageProgress(console, quiet=quiet) as progress,
    ):
        yield runner, progress


def own_process(executor: ExecutorName) -> None:
    """A command has its process to itself, so stages in it may keep what malloc had."""
    if executor == "local":
        from glit.executors.process import keep_freed_memory

        keep_freed_memory()


def lock_command(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe's name, or a TOML file.")],
    overrides: SetOption = None,
) -> None:
    """Write down which models a recipe takes here, for glit build --locked.

    The file is RECIPE.lock.json beside the recipe; for a built-in recipe, in this folder.
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
    """``flism`` on a machine with a GPU and its weights at hand, else ``mini``."""
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
    annotations: Annotated[Path, typer.Argument(help="The file or folder, as published.")],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(IMPORTERS)}.")],
    output: Annotated[str, typer.Option("-o", "--output", help="A .jsonl file for --captions.")],
    images: Annotated[
        Path | None, typer.Option("--images", help="The folder with the images.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Parts joined by +; without it, all.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Published captions as a file for glit build --captions; missing images are listed."""
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
