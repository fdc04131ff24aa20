"""``glit``: the command line with all its commands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import typer

from glit.cli import (
    bench,
    build,
    curate,
    doctor,
    evaluate,
    inspect,
    look,
    pairs,
    sample,
    scenes,
    train,
)
from glit.errors import GlitError, MissingExtraError
from glit.recipes.extras import extra_with
from glit.runtime.terminal import Console
from glit.version import __version__

app = typer.Typer(
    name="glit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build region-grounded long-caption datasets, inspect them, and train CLIP on them.",
)
app.command("doctor")(doctor.doctor_command)
app.command("build")(build.build_command)
app.command("status")(inspect.status_command)
app.command("add")(build.add_command)
app.command("retry")(build.retry_command)
app.command("lock")(build.lock_command)
app.command("verify")(inspect.verify_command)
app.command("view")(look.view_command)
app.command("explain")(look.explain_command)
app.command("stats")(inspect.stats_command)
app.command("query")(inspect.query_command)
app.command("export")(inspect.export_command)
app.command("push")(inspect.push_command)
app.command("import")(build.import_command)
app.command("import-model")(build.import_model_command)
app.command("pair")(curate.pair_command)
app.command("select")(curate.select_command)
app.command("merge")(curate.merge_command)
app.command("references")(curate.references_command)
app.command("overlap")(curate.overlap_command)
app.command("diff")(curate.diff_command)
app.command("clean")(inspect.clean_command)
app.add_typer(pairs.pairs_app, name="pairs")
app.add_typer(bench.bench_app, name="bench")
app.command("train")(train.train_command)
app.command("interpolate")(train.interpolate_command)
app.command("eval")(evaluate.eval_command)
app.command("scenes")(scenes.scenes_command)
app.command("sample")(sample.sample_command)


_OWN_CODE = Path(__file__).parents[1]


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        print(f"glit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; errors become one line and an exit code, glit's warnings one line."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    warnings.formatwarning = _formatted
    try:
        _run()
    except GlitError as error:
        errors.print(f"glit: {error}", markup=False)
        sys.exit(error.exit_code)


def _formatted(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
    *,
    plain: Callable[..., str] = warnings.formatwarning,
) -> str:
    """glit's own warnings without the place in its source; those of libraries as Python has it."""
    if Path(filename).is_relative_to(_OWN_CODE):
        return f"glit: warning: {message}\n"
    return plain(message, category, filename, lineno, line)


def _run() -> None:
    """Run the app; report a missing optional package as a :class:`MissingExtraError`."""
    try:
        app()
    except ModuleNotFoundError as error:
        module = error.name or ""
        extra = extra_with(module)
        if extra is None:
            raise
        raise MissingExtraError(module, extra=extra, needed_for="this command") from error
