"""``export``, ``push`` and ``attach``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from glit import api
from glit.cli.derived import command_of
from glit.cli.options import progress_bar
from glit.exporters import EXPORTERS
from glit.storage.outputs import local_folder


@command_of(api.export, without=["grid", "images", "thumbnails"])
def export_command(
    *,
    dataset: str,
    to: Annotated[str, typer.Option(help=f"The format: {', '.join(EXPORTERS)}.")],
    output: str,
    embeddings: str,
    where: str,
    reencode: bool,
    image_root: str,
    no_grid: bool = False,
    without_images: bool = False,
    no_thumbnails: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Write the dataset, or the samples of a condition, in another format.

    Args:
        no_grid: leave out the grid's regions, and their pairs.
        without_images: for hf: leave out the pictures, keep thumbnails.
        no_thumbnails: of pictures that are left out, keep only hashes.
    """
    from glit.dataset.select import narrowed
    from glit.exporters import export

    folder = local_folder(output)
    opened = narrowed(api.open_dataset(dataset, image_root=image_root), where)
    with progress_bar(quiet=quiet) as progress:
        progress.begin("export", total=len(opened), done=0, drops=False)
        if embeddings:
            progress.loading(embeddings)
        export(
            opened,
            to=to,
            output=folder,
            embeddings=embeddings,
            grid=not no_grid,
            reencode=reencode,
            images=not without_images,
            thumbnails=not no_thumbnails,
            report=progress.advance,
        )
    if as_json:
        print(json.dumps({"output": str(folder), "format": to, "samples": len(opened)}))
        return
    print(f"{len(opened)} images: {folder}")
    if not quiet and (readers := EXPORTERS[to].read_by):
        print(f"read by: {readers}")


@command_of(api.push, without=["images"])
def push_command(
    *,
    dataset: Annotated[str, typer.Argument()],
    repository: str,
    without_images: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Upload a finished dataset to the Hugging Face Hub. Run it again to resume.

    Args:
        without_images: upload hashes and thumbnails in their place.
    """
    with progress_bar(quiet=quiet) as progress:
        pushed = api.push(
            dataset, repository, images=not without_images, progress=progress, **given
        )
    if as_json:
        print(json.dumps(asdict(pushed)))
        return
    what = "private" if pushed.private else "public"
    done = f"{pushed.num_uploaded} of {pushed.num_files} files uploaded"
    print(f"{done}: {pushed.url} ({what}; glit reads {pushed.address})")


@command_of(api.attach)
def attach_command(
    *,
    dataset: str,
    images: Annotated[list[str], typer.Option()],
    output: str,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Find the pictures of a dataset that was published without them. Run it again to resume."""
    from glit.curate.attaching.choice import WAYS

    folder = local_folder(output)
    with progress_bar(quiet=quiet) as progress:
        made = api.attach(dataset, images, folder, progress=progress)
    if as_json:
        print(json.dumps({"dataset": str(folder), **asdict(made)}))
        return
    for way, told in WAYS.items():
        if number := made.found.get(way):
            print(f"{number:>9,}  {told}")
    for reason, number in sorted(made.drops.items()):
        print(f"{number:>9,}  left out: {reason}")
    if made.unreadable:
        print(f"{made.unreadable:>9,}  of {made.files:,} files cannot be decoded")
    found = sum(made.found.values())
    print(f"{found:,} of {made.samples:,} samples have their picture: {folder}")
