"""``glit eval``: measure one model, or several in one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit import api
from glit.cli.derived import command_of
from glit.cli.options import existing, hold, name_next, page_of, progress_bar
from glit.evaluation.tasks import TASKS
from glit.inputs.published import measured
from glit.runtime.terminal import Console
from glit.storage.outputs import local_folder

if TYPE_CHECKING:
    from glit.evaluation.report import Result

_NEIGHBOURS = 4
"""Queries kept per direction for ``glit view``: this many best and this many worst."""

_NAMED = 5
"""At most this many unreadable images are named; the JSON names all."""


@command_of(api.evaluate, without=["models", "neighbours"])
def eval_command(
    *,
    context: typer.Context,
    task: Annotated[str, typer.Argument(show_default=False)],
    model: Annotated[str, typer.Argument()],
    dataset: Annotated[str, typer.Argument(callback=existing)],
    settings: list[str],
    format: Annotated[
        str,
        typer.Option(
            help="; ".join(
                [f"glit, {', '.join(measured())}"]
                + [f"{n}: {', '.join(t.formats)}" for n, t in TASKS.items() if t.formats]
            )
            + ".",
        ),
    ],
    output: str | None = None,
    compare: list[str] | None = None,
    caption: str | None = None,
    offline: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Measure one model, or several with --compare, in one table.

    Args:
        task: one of the tasks listed here, or a plugin's.
        model: a built-in model, a folder, a run of glit train, or a hub id.
        output: the folder for JSON and Markdown files.
        compare: another model for the same table.
        caption: which captions of a glit dataset: long, short or another kind, or all. Default:
            long.
    """
    from glit.recipes.extras import require

    require("models", needed_for="glit eval")
    folder = None if output is None else local_folder(output)
    if folder is not None:
        hold(context, folder)  # before anything takes long
    console = Console(stderr=as_json, highlight=False)
    with progress_bar(quiet=quiet) as progress:
        if caption:
            settings = [*settings, f"evaluate.caption={caption}"]
        results = api.evaluate(
            task, [model, *(compare or [])], dataset, settings=settings, format=format,
            neighbours=_NEIGHBOURS if folder is not None else 0, progress=progress, **given,
        )  # fmt: skip
    if as_json:
        print(json.dumps([result.as_dict() for result in results]))
    else:
        _show(results, console)
    if folder is not None:
        from glit.evaluation.report import write_results

        for path in write_results(folder, results):
            console.print(f"wrote {path}", soft_wrap=True)
        name_next("view", folder, "-o", page_of(folder), quiet=quiet or as_json)


eval_command.__doc__ = "\n".join(
    [
        f"{eval_command.__doc__}\n\n\b",
        *(f"{name:<15}  {task.about}".rstrip() for name, task in TASKS.items()),
    ]
)


def _show(results: list[Result], console: Console) -> None:
    from glit.evaluation.report import short_names, table
    from glit.runtime.tables import Table

    found = table(results)
    console.print(results[0].title, soft_wrap=True)
    for result in results:
        if result.checkpoint:
            console.print(f"{result.model}: {result.checkpoint}", soft_wrap=True)
        if result.broken:
            some = ", ".join(result.broken[:_NAMED])
            more = ", ..." if len(result.broken) > _NAMED else ""
            console.print(
                f"left out, {len(result.broken)} of {result.num_images} images cannot be read: "
                f"{some}{more}",
                soft_wrap=True,
            )
    names = short_names([row[0] for row in found.rows])
    figures = zip(found.heads[1:], *(row[1:] for row in found.rows), strict=True)
    # measurements have many figures, so models stand side by side
    Table(heads=["", *names], rows=[*figures]).show(console)
    if results[0].remark:
        console.print(results[0].remark, soft_wrap=True)
