"""``glit eval``: measure a model; several with ``--compare``, in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from glit.cli.options import JsonOption, QuietOption, RecipeOption, SetOption, hold
from glit.runtime.terminal import Console
from glit.storage.outputs import local_folder

if TYPE_CHECKING:
    from glit.evaluation.report import Result

TaskName = Literal[
    "retrieval", "joint-map", "localize", "robustness", "caption-quality", "classify"
]
CheckpointName = Literal["best", "last"]
_NEIGHBOURS = 4
"""Queries a direction that are kept for the page of ``glit view``, right ones and wrong ones."""

_NAMED = 5
"""Images that cannot be read are named up to here; the JSON names all."""


def eval_command(
    context: typer.Context,
    task: Annotated[TaskName, typer.Argument(help="What to measure.")],
    model: Annotated[
        str, typer.Argument(help="A built-in model, a folder, a run of glit train, or a hub id.")
    ],
    dataset: Annotated[
        str,
        typer.Argument(
            help="A glit dataset; with --format, annotations as published; for classify, a folder "
            "of classes."
        ),
    ],
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Folder for JSON and Markdown files.")
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option("--compare", help="Another model, as often as you like.")
    ] = None,
    checkpoint: Annotated[
        CheckpointName, typer.Option("--checkpoint", help="Which one of a run.")
    ] = "best",
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            help="glit, docci, dci, dci-full, urban1k, coco, flickr30k, sharegpt4v, iiw, goal or "
            "goal-joint.",
        ),
    ] = "glit",
    images: Annotated[
        Path | None, typer.Option("--images", help="The image folder of the annotations.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", help="Part of the annotations, or several: test+qual_test. Without it, test."
        ),
    ] = None,
    false_sentences: Annotated[
        Path | None,
        typer.Option(
            "--false-sentences",
            help='For robustness: JSON lines {"image": 3, "sentence": "..."}, with a "type" each '
            "for figures by type; or the ground_truth.parquet of scenes.",
        ),
    ] = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a model; several with --compare, in one table.

    retrieval: Recall@K both ways. joint-map: mAP@10 over whole images and best regions together.
    localize: whether the patches most like a sentence lie in its region. robustness: retrieval
    with a false sentence in every caption, by type where types are given. caption-quality: mean
    cosine of images and captions.
    classify: zero-shot classification of a folder that holds one folder of images a class.
    """
    from glit.api import evaluate
    from glit.recipes.extras import require
    from glit.runtime.progress import StageProgress

    require("models", needed_for="glit eval")
    folder = None if output is None else local_folder(output)
    if folder is not None:
        hold(context, folder)  # before anything takes long
    console = Console(stderr=as_json, highlight=False)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        results = evaluate(
            task,
            [model, *(compare or [])],
            dataset,
            recipe=recipe or "mini",
            settings=overrides or [],
            kind=kind,
            images=images,
            split=split,
            checkpoint=checkpoint,
            false_sentences=false_sentences,
            neighbours=_NEIGHBOURS if folder is not None else 0,
            progress=progress,
        )
    if as_json:
        print(json.dumps([result.as_dict() for result in results]))
    else:
        _show(results, console)
    if folder is not None:
        from glit.evaluation.report import write_results

        for path in write_results(folder, results):
            console.print(f"wrote {path}", soft_wrap=True)


def _show(results: list[Result], console: Console) -> None:
    from glit.evaluation.report import short_names, table

    headings, rows = table(results)
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
    shown = Table()
    shown.add_column("")
    for name in short_names([row[0] for row in rows]):  # measurements have many figures
        shown.add_column(name, justify="right", overflow="fold")
    for number, heading in enumerate(headings[1:], start=1):
        shown.add_row(heading, *(row[number] for row in rows))
    console.print(shown)
    if results[0].remark:
        console.print(results[0].remark, soft_wrap=True)
