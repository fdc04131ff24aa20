"""``glit sample``."""

from __future__ import annotations

import typer

from glit.cli.derived import command
from glit.cli.options import hold, name_next, progress_bar
from glit.storage.outputs import local_folder


@command
def sample_command(*, context: typer.Context, output: str, quiet: bool = False) -> None:
    """Write twelve photographs with captions and boxes made by hand, as a finished dataset.

    Args:
        output: the folder to write.
    """
    from glit.sample import write_sample

    folder = local_folder(output)
    hold(context, folder)
    progress = progress_bar(quiet=quiet)
    counts = write_sample(folder, progress).counts
    print(f"{counts.shipped} photographs, captions and boxes made by hand: {folder}/dataset")
    name_next("view", f"{folder}/dataset", "-o", f"{folder}/report.html", quiet=quiet)
