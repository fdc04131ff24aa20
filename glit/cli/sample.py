"""``glit sample``."""

from __future__ import annotations

from typing import Annotated

import typer

from glit.cli.options import QuietOption, hold, name_next, progress_bar
from glit.storage.outputs import local_folder


def sample_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    quiet: QuietOption = False,
) -> None:
    """Write twelve photographs with captions and boxes made by hand, as a finished dataset."""
    from glit.sample import write_sample

    folder = local_folder(output)
    hold(context, folder)
    progress = progress_bar(quiet=quiet)
    counts = write_sample(folder, progress).counts
    print(f"{counts.shipped} photographs, captions and boxes made by hand: {folder}/dataset")
    name_next("view", f"{folder}/dataset", "-o", f"{folder}/report.html", quiet=quiet)
