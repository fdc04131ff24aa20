"""``glit view``: a dataset as a page for people."""

from __future__ import annotations

from typing import Annotated

import typer

from glit.cli.inspect import DatasetArgument
from glit.cli.options import ImageRootOption
from glit.storage import local_file


def view_command(
    dataset: DatasetArgument,
    output: Annotated[str, typer.Option("-o", "--output", help="An HTML file that is made.")],
    most: Annotated[int, typer.Option("--sample", min=1, help="Samples on the page.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which samples, if not all.")] = 0,
    where: Annotated[
        str, typer.Option("--where", help="Only samples for which this SQL condition holds.")
    ] = "",
    image_root: ImageRootOption = "",
) -> None:
    """One page of the dataset: how it came to be, its numbers, every pair; it needs no network."""
    from glit.dataset.reader import Dataset
    from glit.view.report import write_report

    page = local_file(output)
    opened = Dataset(dataset, image_root=image_root)
    data = write_report(opened, page, most=most, seed=seed, where=where)
    megabytes = page.stat().st_size / 1e6
    print(f"{data['selection']['shown']} of {len(opened)} samples, {megabytes:.1f} MB: ", end="")
    print(page.resolve().as_uri())
