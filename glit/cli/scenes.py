"""``glit scenes``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from glit.cli.options import QuietOption, hold, name_next, progress_bar
from glit.errors import UserError
from glit.storage.outputs import local_folder


def scenes_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    num: Annotated[int, typer.Option("-n", "--num", min=1, help="Number of scenes.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the scenes.")] = 0,
    level: Annotated[
        Literal["easy", "normal", "hard", "varied"],
        typer.Option(
            "--level",
            help="How similar the objects of a scene are; varied: as hard, with captions that "
            "begin in many ways.",
        ),
    ] = "normal",
    size: Annotated[int, typer.Option("--size", min=64, max=1024, help="Side in pixels.")] = 128,
    image_format: Annotated[
        Literal["png", "jpeg"], typer.Option("--format", help="Image file format.")
    ] = "png",
    masks: Annotated[
        bool,
        typer.Option("--masks", help="Also write NAME.json with the masks beside every image."),
    ] = False,
    short: Annotated[
        bool,
        typer.Option("--short", help="Also write short captions into captions.jsonl."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw procedural scenes with long captions and ground truth."""
    from glit.scenes import write_scenes

    folder = local_folder(output)
    hold(context, folder)
    try:
        with progress_bar(quiet=quiet) as progress:
            write_scenes(
                folder,
                num=num,
                seed=seed,
                level=level,
                size=size,
                image_format=image_format,
                masks=masks,
                short=short,
                progress=progress,
            )
    except OSError as error:
        raise UserError(f"{folder}: cannot write there ({error.strerror or error})") from error
    print(f"{num} scenes: {folder}/images, {folder}/captions.jsonl, {folder}/ground_truth.parquet")
    name_next("build", f"{folder}/images", "-o", f"{folder}/dataset", "-r", "mini", quiet=quiet)
