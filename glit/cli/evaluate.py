"""``glit eval``: retrieval, joint-map, localize, robustness, caption-quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

eval_app = typer.Typer(
    no_args_is_help=True, help="Measure a model; several with --compare, in one table."
)

ModelArgument = Annotated[
    str, typer.Argument(help="A built-in model, a folder, a run of glit train, or a hub id.")
]
SourceArgument = Annotated[
    str, typer.Argument(help="A glit dataset; with --format, annotations as published.")
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Folder for the JSON and Markdown files.")
]
CompareOption = Annotated[
    list[str] | None, typer.Option("--compare", help="Another model, as often as you like.")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="glit, docci, dci, dci-full, urban1k, coco, flickr30k, sharegpt4v, iiw, goal or "
        "goal-joint.",
    ),
]
JointFormatOption = Annotated[
    str, typer.Option("--format", help="glit, or goal-joint for a joint set of GOAL.")
]
ImagesOption = Annotated[
    Path | None, typer.Option("--images", help="The image folder of the annotations.")
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split", help="Part of the annotations, or several: test+qual_test. Without it, test."
    ),
]
RecipeOption = Annotated[
    str | None, typer.Option("-r", "--recipe", help="A recipe with an [evaluate] table.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="evaluate.key=value, as often as you like.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def _run(
    task: str,
    model: str,
    source: str,
    output: Path | None,
    compare: list[str] | None,
    kind: str,
    images: Path | None,
    split: str | None,
    recipe: str | None,
    overrides: list[str] | None,
    as_json: bool,
    false_sentences: Path | None = None,
) -> None:
    from transformers.utils import logging

    from glit.evaluate.report import table, write_results
    from glit.evaluate.run import evaluate
    from glit.recipe import load_table

    logging.disable_progress_bar()
    console = Console(stderr=as_json, highlight=False)
    config = load_table("evaluate", recipe or "mini", overrides=overrides or [])
    with console.status(f"{task} on {source}"):
        results = evaluate(
            task,
            [model, *(compare or [])],
            source,
            config,
            kind=kind,
            images=images,
            split=split,
            false_sentences=false_sentences,
        )
    if as_json:
        print(json.dumps([result.as_dict() for result in results]))
    else:
        headings, rows = table(results)
        console.print(results[0].title, soft_wrap=True)
        shown = Table()
        shown.add_column("")
        for row in rows:  # a column for each model: measurements have many figures
            shown.add_column(Path(row[0]).name, justify="right", overflow="fold")
        for number, heading in enumerate(headings[1:], start=1):
            shown.add_row(heading, *(row[number] for row in rows))
        console.print(shown)
    if output is not None:
        for path in write_results(output, results):
            console.print(f"wrote {path}")


@eval_app.command("retrieval")
def retrieval_command(
    model: ModelArgument,
    dataset: SourceArgument,
    output: OutputOption = None,
    compare: CompareOption = None,
    kind: FormatOption = "glit",
    images: ImagesOption = None,
    split: SplitOption = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recall@K of images by captions and of captions by images."""
    _run(
        "retrieval",
        model,
        dataset,
        output,
        compare,
        kind,
        images,
        split,
        recipe,
        overrides,
        as_json,
    )


@eval_app.command("joint-map")
def joint_map_command(
    model: ModelArgument,
    dataset: SourceArgument,
    output: OutputOption = None,
    compare: CompareOption = None,
    kind: JointFormatOption = "glit",
    images: ImagesOption = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retrieval mAP@10 over whole images and best regions together."""
    _run(
        "joint-map", model, dataset, output, compare, kind, images, None, recipe, overrides, as_json
    )


@eval_app.command("localize")
def localize_command(
    model: ModelArgument,
    dataset: SourceArgument,
    output: OutputOption = None,
    compare: CompareOption = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether the patches most like a sentence lie in its region."""
    _run(
        "localize", model, dataset, output, compare, "glit", None, None, recipe, overrides, as_json
    )


@eval_app.command("robustness")
def robustness_command(
    model: ModelArgument,
    dataset: SourceArgument,
    output: OutputOption = None,
    compare: CompareOption = None,
    kind: FormatOption = "glit",
    images: ImagesOption = None,
    split: SplitOption = None,
    false_sentences: Annotated[
        Path | None,
        typer.Option(
            "--false-sentences", help='JSON lines {"image": 3, "sentence": "..."}, one an image.'
        ),
    ] = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retrieval with a false sentence in the middle of every caption."""
    _run(
        "robustness",
        model,
        dataset,
        output,
        compare,
        kind,
        images,
        split,
        recipe,
        overrides,
        as_json,
        false_sentences,
    )


@eval_app.command("caption-quality")
def caption_quality_command(
    model: ModelArgument,
    dataset: SourceArgument,
    output: OutputOption = None,
    compare: CompareOption = None,
    kind: FormatOption = "glit",
    images: ImagesOption = None,
    split: SplitOption = None,
    recipe: RecipeOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Mean cosine of images and their captions."""
    _run(
        "caption-quality",
        model,
        dataset,
        output,
        compare,
        kind,
        images,
        split,
        recipe,
        overrides,
        as_json,
    )
