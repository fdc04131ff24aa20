"""``glit view`` and ``glit explain``: pages and text about datasets and samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit import api
from glit.cli.derived import command
from glit.cli.options import progress_bar
from glit.errors import UserError
from glit.runtime.terminal import visible
from glit.storage.outputs import local_file

if TYPE_CHECKING:
    from glit.pipeline.status import UnfinishedBuild
    from glit.runtime.progress import StageProgress

PORT = 8470


@command
def view_command(
    *,
    dataset: str,
    others: Annotated[list[str] | None, typer.Argument()] = None,
    output: str | None = None,
    most: Annotated[int, typer.Option("--sample", min=1)] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    where: str = "",
    serve: bool = False,
    port: int = PORT,
    maps: list[str] | None = None,
    image_root: str = "",
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Write an HTML report of a dataset, a comparison or training runs; tell what differs between
    two datasets.

    The page needs no network. For a dataset: how it was built, its numbers, every pair. For two
    datasets: their differences; without -o these are printed, with exit code 1 if there are any.
    For training runs: loss terms and checkpoints; with --maps, where a model
    and the runs find sentences of their dataset. For the output of
    glit eval -o: recall curves, and queries that succeed and fail.

    Args:
        others: second dataset to compare, or further runs and results of :func:`evaluate`.
        output: the HTML file to write.
        most: number of samples on the page.
        seed: seed for choosing the samples.
        where: show only samples that meet this SQL condition.
        serve: open a local server instead of writing a file.
        port: port for ``serve``.
        maps: show where this model finds each sentence.
        as_json: of two datasets, print what differs as JSON.
    """
    from glit.dataset.reader import Dataset
    from glit.view.compare import compare_data
    from glit.view.learning import is_results, is_run
    from glit.view.page_file import report_html
    from glit.view.report import write_page, write_report

    learns = is_run(dataset) or is_results(dataset)
    if others and not (serve or output or where or maps or learns) and len(others) == 1:
        _print_differences(dataset, others[0], as_json=as_json)
        return
    if as_json:
        raise UserError("--json: prints what differs between two datasets: glit view A B --json")
    if serve == (output is not None):
        raise UserError("glit view: want either -o report.html, for one page, or --serve, for all")
    other = others[0] if others else None
    if other is not None and (serve or where):
        raise UserError("glit view A B: writes one page (-o), and takes no --where and no --serve")
    if maps and (serve or (other is not None and not is_run(dataset))):
        raise UserError("--maps MODEL: takes one dataset, or runs, and -o")
    if learns:
        if serve or where or (image_root and not maps):
            raise UserError(f"{dataset}: no dataset, so it takes no --serve, --where, --image-root")
        with progress_bar(quiet=quiet) as told:
            folders = [dataset, *(others or [])]
            _learning(folders, local_file(output or ""), maps or [], image_root, told)
        return
    if others and len(others) > 1:
        raise UserError(f"{len(others) + 1} datasets; a page compares two: glit view A B -o OUT")
    unfinished = api.unfinished_build(dataset)
    if output is not None and other is None and unfinished is not None:
        _unfinished(unfinished, local_file(output), image_root)
        return
    opened = Dataset(dataset, image_root=image_root)
    if serve:
        _serve(opened, port=port, where=where)
        return
    page = local_file(output or "")
    with progress_bar(quiet=quiet) as told:
        if other is not None:
            against = Dataset(other, image_root=image_root)
            data = compare_data(opened, against, most=most, seed=seed, progress=told)
            write_page(page, report_html(data))
        else:
            found = _maps(maps, dataset, image_root, told) if maps else None
            data = write_report(
                opened, page, most=most, seed=seed, where=where, maps=found, progress=told
            )
    megabytes = page.stat().st_size / 1e6
    print(f"{len(data['samples'])} of {len(opened)} samples, {megabytes:.1f} MB: ", end="")
    print(page.resolve().as_uri())


def _print_differences(dataset: str, other: str, *, as_json: bool) -> None:
    """Print what differs between two datasets; exit with 1 if anything does."""
    found = api.diff(dataset, other)
    if as_json:
        print(json.dumps(found))
    else:
        for key, (first, second) in found["settings"].items():
            alone = "first" if second is None else "second"
            is_table = "." not in key
            told = f"only in the {alone}" if is_table else f"{first} | {second}"
            print(visible(f"{key}: {told}"))
        images = found["images"]
        print(
            f"{images['both']} images in both, {images['only_a']} in the first alone, "
            f"{images['only_b']} in the second alone"
        )
        kinds = {kind: number for kind, number in found["sentences"].items() if number}
        told = ", ".join(f"{number} {_KINDS[kind]}" for kind, number in kinds.items())
        print(f"sentences of {found['compared']} images: {told or 'none'}")
    if not found["same"]:
        raise typer.Exit(1)


_KINDS = {
    "same": "with the same region",
    "other": "with another",
    "only_a": "with one in the first alone",
    "only_b": "with one in the second alone",
    "neither": "without a region in both",
    "reworded": "not in both",
}


def _maps(models: list[str], dataset: str, image_root: str, told: Any) -> Any:
    from functools import partial

    from glit.evaluation.config import EvaluateConfig
    from glit.evaluation.patch_maps import patch_maps
    from glit.pipeline.planning.recipe import load_table
    from glit.recipes.extras import require

    require("models", needed_for="glit view --maps")
    config = load_table(EvaluateConfig, "mini", overrides=[f"evaluate.image_root={image_root}"])
    return partial(patch_maps, models, dataset, config=config, progress=told)


def _learning(
    folders: list[str], page: Path, maps: list[str], image_root: str, told: StageProgress
) -> None:
    from glit.dataset.reader import Dataset
    from glit.view.learning import dataset_of_run, is_run, learning_data, mapped
    from glit.view.page_file import report_html
    from glit.view.report import add_maps, write_page

    data = learning_data(folders)
    if maps:
        runs = [folder for folder in folders if is_run(folder)]
        if not runs:
            raise UserError(f"{folders[0]} --maps: has no dataset; glit view DATASET --maps MODEL")
        dataset = dataset_of_run(runs[0])
        data |= mapped(Dataset(dataset, image_root=image_root))
        add_maps(data["samples"], _maps([*maps, *runs], dataset, image_root, told))
    write_page(page, report_html(data))
    print(f"{' and '.join(folders)}, {page.stat().st_size / 1e6:.1f} MB: {page.resolve().as_uri()}")


def _unfinished(build: UnfinishedBuild, page: Path, image_root: str) -> None:
    from glit.view.page_file import report_html
    from glit.view.report import write_page
    from glit.view.unfinished import unfinished_data

    data = unfinished_data(build, image_root=image_root)
    write_page(page, report_html(data))
    print(f"not finished; {data['dropped']} dropped so far: {page.resolve().as_uri()}")


def _serve(dataset: Any, *, port: int, where: str) -> None:
    from glit.view.server import PageServer

    with PageServer(dataset, port=port, where=where) as server:
        print(f"{len(dataset)} samples: {server.address}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve()
        except KeyboardInterrupt:
            print()


@command
def explain_command(
    *,
    dataset: str,
    sample: Annotated[str, typer.Argument()],
    output: str | None = None,
    maps: list[str] | None = None,
    as_json: bool = False,
    image_root: str = "",
    quiet: bool = False,
) -> None:
    """Follow one image from its file to its pairs, or to the reason for its drop.

    Args:
        sample: a path, a sample_id, or the beginning of one.
        output: the HTML file to write.
        maps: show where this model finds each sentence.
    """
    from glit.dataset.reader import Dataset
    from glit.view.explain import as_text, explain, explain_page
    from glit.view.page_file import report_html
    from glit.view.report import add_maps, write_page

    if maps and output is None:
        raise UserError("--maps MODEL: draws on a page; add -o page.html")
    page = None if output is None else local_file(output)
    unfinished = api.unfinished_build(dataset)
    if unfinished is not None:
        print(visible(unfinished.explain(sample)))
        return
    opened = Dataset(dataset, image_root=image_root)
    found = explain(opened, sample)
    print(json.dumps(found) if as_json else visible(as_text(found)))
    if page is not None:
        data = explain_page(opened, found)
        if maps and "sample" in data:
            with progress_bar(quiet=quiet) as told:
                add_maps([data["sample"]], _maps(maps, dataset, image_root, told))
        write_page(page, report_html(data))
        if not as_json:
            print(f"\n{page.resolve().as_uri()}")
