"""``status``, ``verify``, ``stats``, ``query``, ``clean``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from glit import api
from glit.cli.derived import command, command_of
from glit.cli.options import progress_bar
from glit.errors import DatasetError, InputError, UserError
from glit.runtime.progress import duration
from glit.runtime.terminal import Console, one_line, visible
from glit.storage.outputs import local_file
from glit.storage.store import Store

_MOST_LINES = 200
_MOST_SHOWN = 100
_MOST_DROPS = 8


@command
def status_command(*, dataset: str, timeline: bool = False, as_json: bool = False) -> None:
    """Show what is done, pending and dropped, per stage. --json adds the dataset's statistics.

    Args:
        timeline: show when each stage ran and how busy it was.
    """
    found = api.status(dataset)
    runs = api.timelines(dataset) if timeline else []
    if as_json:
        further = {"timeline": [asdict(run) for run in runs]} if timeline else {}
        print(json.dumps({**found, "statistics": _statistics(found), **further}))
        return
    console = Console(highlight=False)
    how = "complete" if found["complete"] else "not finished; run glit build again to resume"
    if found["empty"]:
        how = "nothing was shipped; once fixed, run glit retry"
    if found["adding"]:
        how = "complete; an addition is not finished, run glit add again to resume"
    elif found["complete"] and found["retrying"]:
        how = "complete; a retry is not finished, run glit retry again to resume"
    console.print(f"{dataset}: {how}", soft_wrap=True)
    if found["command"] and not found["empty"]:
        console.print(f"  {visible(found['command'])}", soft_wrap=True, markup=False)
    if found["stages"]:
        table = Table("stage", "chunks", "rows", "dropped")
        for stage in found["stages"]:
            drops = ", ".join(f"{number} {reason}" for reason, number in stage["drops"].items())
            chunks = f"{stage['chunks_done']}/{stage['chunks_total']}"
            table.add_row(stage["stage"], chunks, str(stage["rows"]), drops or "0")
        console.print(table)
    if found["seconds_left"]:
        not_timed = ", ".join(found["stages_not_timed"])
        more = f", and {not_timed}, not timed yet" if not_timed else ""
        console.print(f"at the pace so far: {duration(found['seconds_left'])} left{more}")
    if not found["complete"] and any(stage["drops"] for stage in found["stages"]):
        unfinished = api.unfinished_build(dataset)
        drops = [] if unfinished is None else unfinished.drops().to_pylist()
        for row in drops[:_MOST_DROPS]:
            told = f"{row['source_path']}: {row['stage']}/{row['reason']}, {row['message']}"
            console.print(one_line(told), soft_wrap=True, markup=False)
        if len(drops) > _MOST_DROPS:
            rest = f'glit query {dataset} "SELECT source_path, message FROM drops"'
            console.print(f"and {len(drops) - _MOST_DROPS} more: {rest}", soft_wrap=True)
    if found["complete"]:
        c = found["counts"]
        console.print(
            f"{c['ingested']} ingested = {c['shipped']} shipped + {c['dropped']} dropped + "
            f"{c['duplicates']} duplicates"
        )
    if timeline:
        from glit.cli.timeline import timeline_lines

        if not runs:
            console.print("no timeline: glit build keeps it in the work folder")
        for line in chain.from_iterable(map(timeline_lines, runs)):
            console.print(line, soft_wrap=True, markup=False)


def _statistics(found: dict[str, Any]) -> dict[str, Any] | None:
    """The statistics of a dataset. None while it is not finished; None, with a line on stderr, if
    its rows are damaged or there are none."""
    if not found["complete"]:
        return None
    try:
        return api.statistics(found["dataset"]).as_dict()
    except (DatasetError, InputError) as error:
        print(visible(f"no statistics: {error}"), file=sys.stderr)
        return None


@command
def verify_command(dataset: str, quiet: bool = False, as_json: bool = False) -> None:
    """Check every promise of the data format. Prints one line per breach and exits 1."""
    from glit.dataset.manifest import read_manifest
    from glit.dataset.verify import verify

    with progress_bar(quiet=quiet) as progress:
        breaches = list(islice(verify(dataset, progress), _MOST_LINES))
    if as_json:
        print(json.dumps({"dataset": dataset, "ok": not breaches, "breaches": breaches}))
    else:
        for breach in breaches:
            print(one_line(breach))
        if len(breaches) == _MOST_LINES:
            print(f"(stopped after {_MOST_LINES} breaches)")
        if not breaches:
            manifest = read_manifest(Store(dataset))
            files = len(manifest.files)
            print(f"{dataset}: {manifest.counts.shipped} samples in {files} files, all well")
    if breaches:
        sys.exit(1)


@command_of(api.statistics)
def stats_command(
    *, captions: str, format: str, summary: bool = False, as_json: bool = False, **given: Any
) -> None:
    """Count words, sentences and tokens of captions, as papers' tables do.

    Args:
        summary: print a draft of the summary of training content that the EU AI Act asks for.
    """
    from glit.dataset.manifest import read_manifest
    from glit.dataset.statistics import PAPER_COLUMNS, beside_papers, lines, tokens_note
    from glit.dataset.training_summary import training_summary

    if summary and (format != "glit" or as_json):
        raise UserError("--summary: is of a dataset of glit, in Markdown; leave the rest out")
    found = api.statistics(captions, format=format, **given)
    if summary:
        store = Store(captions)
        print(training_summary(read_manifest(store), found, name=store.name), end="")
        return
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    table = Table(show_header=False)
    for row in lines(found):
        table.add_row(*row)
    papers = Table(*PAPER_COLUMNS)
    for row in beside_papers(found):
        papers.add_row(*row)
    console = Console(highlight=False)
    console.print(table, papers)
    if note := tokens_note(found):
        console.print(note, soft_wrap=True, markup=False)


@command
def query_command(
    *,
    dataset: str,
    sql: Annotated[str, typer.Argument()],
    form: Annotated[
        Literal["table", "csv", "json", "parquet"] | None, typer.Option("--format")
    ] = None,
    output: str | None = None,
    as_json: bool = False,
) -> None:
    """Query the dataset with SQL, read-only. Cannot access files outside the dataset.

    Args:
        sql: a SELECT over samples, sentences, regions, pairs, drops, duplicates.
        form: output format. Default: table, or what ``output`` names.
        output: write a .csv, .json or .parquet file.
        as_json: same as ``form`` json.
    """
    from glit.dataset.query import query as query_finished
    from glit.dataset.query_output import answer_format, write_answer

    if as_json and form not in (None, "json"):
        raise UserError(f"--json --format {form}: contradict each other; leave out one")
    form = "json" if as_json else form
    unfinished = api.unfinished_build(dataset)
    query = partial(query_finished, dataset) if unfinished is None else unfinished.query
    if output is None:
        if form == "parquet" and sys.stdout.isatty():
            raise UserError("--format parquet: not for a terminal; want -o FILE.parquet")
        found = query(sql)
        if form in (None, "table"):
            with contextlib.redirect_stdout(io.StringIO()) as table:
                found.show(max_rows=_MOST_SHOWN)
            print(visible(table.getvalue()), end="")
        elif sys.stdout.isatty():
            answer = io.BytesIO()
            write_answer(found, answer, form)
            print(visible(answer.getvalue().decode("utf-8", "surrogateescape")), end="")
        else:
            write_answer(found, sys.stdout.buffer, form)
        return
    path = local_file(output)
    by_name = answer_format(path)
    if form not in (None, by_name):
        raise UserError(f"-o {path}: is a {by_name} file, but {form} is asked for; leave out one")
    found = query(sql)
    try:
        with Store(path.parent).atomic(path.name) as temporary, temporary.open("wb") as out:
            write_answer(found, out, by_name)
    except OSError as error:
        raise UserError(f"-o {path}: cannot write there ({error.strerror or error})") from error
    print(f"{len(found)} rows: {path}")


@command
def clean_command(*, dataset: str) -> None:
    """Remove the resumable state (work/). A finished dataset stays."""
    freed = api.clean(dataset)
    print(f"{dataset}/work removed, {freed / 2**20:.1f} MB freed")
