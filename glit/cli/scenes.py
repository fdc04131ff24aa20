"""``glit scenes``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from glit.errors import UserError


def scenes_command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.")],
    num: Annotated[int, typer.Option("-n", "--num", min=1, help="How many scenes.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="First seed; see docs/scenes.md.")] = 0,
    level: Annotated[
        Literal["easy", "normal", "hard"], typer.Option("--level", help="How confusable.")
    ] = "normal",
    size: Annotated[int, typer.Option("--size", min=64, max=1024, help="Side, pixels.")] = 128,
    image_format: Annotated[
        Literal["png", "jpeg"], typer.Option("--format", help="Image file format.")
    ] = "png",
    masks: Annotated[
        bool, typer.Option("--masks", help="Put NAME.json with the masks beside every image.")
    ] = False,
) -> None:
    """Procedural scenes with long captions and ground truth."""
    from glit.scenes import write_scenes

    try:
        write_scenes(
            output,
            num=num,
            seed=seed,
            level=level,
            size=size,
            image_format=image_format,
            masks=masks,
        )
    except OSError as error:
        raise UserError(f"{output}: cannot write there ({error.strerror or error})") from error
    print(f"{num} scenes: {output}/images, {output}/captions.jsonl, {output}/ground_truth.parquet")
