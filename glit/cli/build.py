"""``glit build``, ``glit add``, ``glit retry`` and ``glit lock``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glit import api
from glit.cli.options import DatasetArgument, JsonOption, QuietOption, SetOption, existing
from glit.executors import ExecutorName
from glit.importers import FORMATS
from glit.runtime.progress import StageProgress
from glit.runtime.terminal import Console, visible
from glit.storage.outputs import local_file, local_folder, output_folder

if TYPE_CHECKING:
    from glit.pipeline.add import Added

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
        str,
        typer.Argument(
            help="A folder, glob, list file, tar, Parquet file or address.", callback=existing
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The dataset's folder or address.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--recipe",
            help="A built-in recipe or a TOML file. Default: provided with --captions and "
            "--regions; else flism (with --captions: captions) if this machine has a GPU and the "
            "weights, else mini.",
        ),
    ] = None,
    overrides: SetOption = None,
    captions: Annotated[
        str | None,
        typer.Option(
            "--captions",
            help="Your own captions: a .jsonl, .csv, .parquet or COCO .json file.",
            callback=existing,
        ),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            "--regions",
            help="Your own boxes, with their sentences and phrases: a .jsonl, .csv, .parquet or "
            "COCO .json file.",
            callback=existing,
        ),
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
    folder = output_folder(output)
    console = Console(stderr=as_json, highlight=False)
    both = captions is not None and regions is not None
    name = recipe or ("provided" if both else default_recipe(captions is not None))
    if recipe is None and name == "mini":
        console.print(
            "No GPU with the weights found: using the recipe 'mini'. Its models understand only "
            "glit's procedural scenes; for photographs choose -r laptop or -r flism."
        )
    dataset = api.build(
        images,
        folder,
        recipe=name,
        settings=overrides or (),
        captions=captions,
        regions=regions,
        limit=limit,
        replace=replace,
        locked=locked,
        **_at_work(executor, ray_address, console, quiet=quiet),
    )
    _report(dataset.manifest, folder, console, as_json=as_json)


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
    """Add new images without redoing the old ones. Run the same command again to resume."""
    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)

    def report(added: Added) -> None:
        counts, new = added.manifest["counts"], added.balance
        if as_json:
            print(json.dumps({"dataset": folder, "counts": counts, "added": new}))
        elif new is None:
            console.print(f"{folder}: no new images in {added.images}", soft_wrap=True)
        else:
            _report(added.manifest, folder, console, as_json=False)
            console.print(f"added: {_balance(new)}", soft_wrap=True)

    how = _at_work(executor, ray_address, console, quiet=quiet)
    api.add(folder, limit=limit, report=report, **how)


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
    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)
    how = _at_work(executor, ray_address, console, quiet=quiet)
    retried = api.retry(folder, stage=stage, reason=reason, settings=overrides or (), **how)
    _report(retried.manifest, folder, console, as_json=as_json)


def _at_work(
    executor: ExecutorName, address: str | None, console: Console, *, quiet: bool
) -> dict[str, Any]:
    """Where to run, and who is told. A command owns its process, so stages that run in it may keep
    the memory that they free."""
    if executor == "local":
        from glit.executors.process import keep_freed_memory

        keep_freed_memory()
    progress = StageProgress(console, quiet=quiet)
    return {"executor": executor, "ray_address": address, "progress": progress}


def lock_command(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe or a TOML file.")],
    overrides: SetOption = None,
) -> None:
    """Record the models of a recipe on this machine, for glit build --locked.

    Writes RECIPE.lock.json beside the recipe, or into this folder for a built-in recipe.
    """
    path, models = api.lock(recipe, settings=overrides or ())
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
    from glit.dataset.manifest import has_regions

    counts = manifest["counts"]
    if as_json:
        print(json.dumps({"dataset": dataset, "counts": counts}))
        return
    without = counts["without_pair"] if has_regions(manifest) else 0
    bare = f" ({without} without a pair)" if without else ""
    console.print(f"{dataset}: {_balance(counts)}{bare}", soft_wrap=True)
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
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The .jsonl file to write.")],
    images: Annotated[Path | None, typer.Option("--images", help="The image folder.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Parts, joined by +. Default: all.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Convert published captions to a file for glit build --captions. Lists missing images.

    Boxes published with them go to OUT.regions.jsonl, for --regions.
    """
    from glit.data.frames import CHANGES
    from glit.importers import import_captions, regions_file

    path = local_file(output)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        found = import_captions(
            form, annotations, path, images=images, split=split, progress=progress
        )
    what = f"images with captions of the kinds {', '.join(found.kinds)}" if found.kinds else ""
    print(f"{found.captions} {what or 'captions'}: {path}")
    if found.regions is not None:
        edge = f", {found.cut} cut at the edge of their image" if found.cut else ""
        left = f", {found.empty} empty ones left out" if found.empty else ""
        print(f"{found.regions} boxes: {regions_file(path)}{edge}{left}")
    for count, how in ((found.scaled, "scaled"), (found.turned, "turned")):
        if count:
            print(f"boxes of {count} image{'s' * (count > 1)} were {how}: {CHANGES[how]}")
    if found.without:
        images_have = "1 image has" if found.without == 1 else f"{found.without} images have"
        print(f"{images_have} no caption" + ("" if found.regions is None else " or no box"))
    if found.regions is not None:
        words = [
            "glit", "build", found.folder, "-o", path.stem, "-r", "provided",
            "--captions", str(path), "--regions", str(regions_file(path)),
            *(["--set", "ground.enabled=true"] if found.phrases else []),
        ]  # fmt: skip
        print(f"next: {shlex.join(words)}")
    for fault in found.refused:
        print(visible(f"left out: {fault}"), file=sys.stderr)
    if found.refused:
        print(f"{len(found.refused)} left out; listed above", file=sys.stderr)
    for name in found.missing:
        print(visible(f"missing: {name}"), file=sys.stderr)
    if found.missing:
        number = len(found.missing)
        images_are = "1 image is" if number == 1 else f"{number} images are"
        print(f"{images_are} missing; listed above", file=sys.stderr)


def import_model_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A published file of weights (.pt, .bin, .safetensors), or FG-CLIP's folder."
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    like: Annotated[
        str,
        typer.Option(
            "--like",
            help="The CLIP it was fine-tuned from: a name, a folder, a hub id. Default: the "
            "checkpoint's own folder, else clip-vit-b-16.",
        ),
    ] = "",
    activation: Annotated[
        Literal["quick_gelu", "gelu"] | None,
        typer.Option(
            "--activation",
            help="Activation of the model, which no file of weights says. Default: that of --like.",
        ),
    ] = None,
) -> None:
    """Convert a published CLIP checkpoint, such as Long-CLIP's, to a folder for glit train, eval
    and build. Runs no code in the file."""
    from glit.importers.model import import_model

    folder = local_folder(output)
    made = import_model(checkpoint, folder, like=like, activation=activation)
    print(
        f"{made.parameters:,} parameters, a window of {made.context} tokens, activation "
        f"{made.activation}, SHA-256 of the file {made.sha256}: {folder}"
    )
