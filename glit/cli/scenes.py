"""``glit scenes``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from glit.cli.derived import command
from glit.cli.options import hold, name_next, progress_bar
from glit.errors import UserError
from glit.storage.outputs import local_folder


@command
def scenes_command(
    *,
    context: typer.Context,
    output: str,
    num: Annotated[int, typer.Option("-n", min=1)],
    seed: Annotated[int, typer.Option(min=0)] = 0,
    level: Literal["easy", "normal", "hard", "varied"] = "normal",
    size: Annotated[int, typer.Option(min=64, max=1024)] = 128,
    image_format: Annotated[Literal["png", "jpeg"], typer.Option("--format")] = "png",
    masks: bool = False,
    short: bool = False,
    quiet: bool = False,
) -> None:
    """Draw procedural scenes with long captions and ground truth.

    Args:
        output: the folder to write.
        num: number of scenes.
        seed: seed of the scenes.
        level: how similar the objects of a scene are; varied: as hard, with captions that begin in
            many ways.
        size: side in pixels.
        image_format: image file format.
        masks: also write NAME.json with the masks beside every image.
        short: also write short captions into captions.jsonl.
    """
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
