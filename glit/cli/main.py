"""``glit``: the command line with all its commands."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import typer

from glit.cli.lazy import lazy_group
from glit.errors import GlitError, MissingExtraError, MissingPackage, UserError
from glit.masking import mask_tracebacks, masked
from glit.recipes.extras import extra_with
from glit.runtime.terminal import Console
from glit.version import __version__

PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "Build a dataset": {
        "doctor": (
            "glit.cli.doctor:doctor_command",
            "Check whether a build would work here; estimate time and disk. Exits 1 if it would "
            "fail.",
        ),
        "estimate": (
            "glit.cli.doctor:estimate_command",
            "Estimate a large build from a small one: hours, money, bytes, files and tokens.",
        ),
        "recipes": (
            "glit.cli.recipes:recipes_command",
            "List the recipes and their missing models and packages, or print one recipe in full.",
        ),
        "build": (
            "glit.cli.build:build_command",
            "Build a dataset from images. Run the same command again to resume.",
        ),
        "status": (
            "glit.cli.inspect:status_command",
            "Show what is done, pending and dropped, per stage. --json adds the dataset's "
            "statistics.",
        ),
        "add": (
            "glit.cli.build:add_command",
            "Add new images without redoing the old ones. Run the same command again to resume.",
        ),
        "retry": (
            "glit.cli.build:retry_command",
            "Process the dropped samples again and merge the ones that succeed.",
        ),
        "trust": (
            "glit.cli.build:trust_command",
            "Confirm a recipe file that asks for pickles, keys, another machine or other files.",
        ),
        "lock": (
            "glit.cli.build:lock_command",
            "Record the models of a recipe on this machine, for glit build --locked.",
        ),
        "clean": (
            "glit.cli.inspect:clean_command",
            "Remove the resumable state (work/). A finished dataset stays.",
        ),
    },
    "Look at it": {
        "view": (
            "glit.cli.look:view_command",
            "Write an HTML report of a dataset, a comparison or training runs; tell what differs "
            "between two datasets.",
        ),
        "explain": (
            "glit.cli.look:explain_command",
            "Follow one image from its file to its pairs, or to the reason for its drop.",
        ),
        "query": (
            "glit.cli.inspect:query_command",
            "Query the dataset with SQL, read-only. Cannot access files outside the dataset.",
        ),
        "stats": (
            "glit.cli.inspect:stats_command",
            "Count words, sentences and tokens of captions, as papers' tables do.",
        ),
        "audit": (
            "glit.cli.audit:audit_command",
            "Look for faults in a dataset or a published file; exit code 1 if one is an error.",
        ),
        "verify": (
            "glit.cli.inspect:verify_command",
            "Check every promise of the data format. Prints one line per breach and exits 1.",
        ),
    },
    "Change it": {
        "pairs": (
            "glit.cli.pairs:pairs_app",
            "Judge pairs by eye; calibrate on the verdicts; certify and correct a dataset.",
        ),
        "pair": (
            "glit.cli.curate:pair_command",
            "Write the dataset with the pairs of another rule. Needs no model and no pixels.",
        ),
        "select": (
            "glit.cli.curate:select_command",
            "Write some samples as a new dataset, or divide them into parts. Without --distinct "
            "it needs no model.",
        ),
        "merge": (
            "glit.cli.curate:merge_command",
            "Write the samples of several datasets as one. A repeated image is taken once.",
        ),
        "overlap": (
            "glit.cli.curate:overlap_command",
            "Find a dataset's images that resemble one of a test set; exit code 1 if any do.",
        ),
    },
    "Share it": {
        "import": (
            "glit.cli.imports:import_command",
            "Convert published captions to a file for glit build --captions. Lists missing images.",
        ),
        "export": (
            "glit.cli.share:export_command",
            "Write the dataset, or the samples of a condition, in another format.",
        ),
        "attach": (
            "glit.cli.share:attach_command",
            "Find the pictures of a dataset that was published without them. Run it again to "
            "resume.",
        ),
        "push": (
            "glit.cli.share:push_command",
            "Upload a finished dataset to the Hugging Face Hub. Run it again to resume.",
        ),
    },
    "Learn from it": {
        "train": (
            "glit.cli.train:train_command",
            "Fine-tune CLIP on a dataset. Under torchrun, uses several processes.",
        ),
        "eval": (
            "glit.cli.evaluate:eval_command",
            "Measure one model, or several with --compare, in one table.",
        ),
        "import-model": (
            "glit.cli.imports:import_model_command",
            "Convert a published CLIP checkpoint, such as Long-CLIP's, to a folder for glit "
            "train, eval and build. Runs no code in the file.",
        ),
    },
    "Try and research": {
        "sample": (
            "glit.cli.sample:sample_command",
            "Write twelve photographs with captions and boxes made by hand, as a finished dataset.",
        ),
        "scenes": (
            "glit.cli.scenes:scenes_command",
            "Draw procedural scenes with long captions and ground truth.",
        ),
        "bench": (
            "glit.cli.bench:bench_app",
            "Measure speed and compare objectives, in ratios on one machine.",
        ),
        "interpolate": (
            "glit.cli.train:interpolate_command",
            "Interpolate the weights between a model and its fine-tuned version (WiSE-FT).",
        ),
    },
}
"""The commands by what they are for: the place of each one's function, and the first paragraph of
its docstring."""
RENAMED: dict[str, dict[str, str]] = {
    "bench": {"--images": "--num", "--together": "--neighbours"},
}
"""The options of commands that have another name now; the old one is taken, with a warning."""
ALIASES = {"diff": "view", "references": "overlap"}
"""Earlier names of commands, which ``glit --help`` does not list."""
app = typer.Typer(
    name="glit",
    cls=lazy_group(PANELS, RENAMED, ALIASES),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Build region-grounded long-caption datasets, inspect them, and train CLIP on them.",
)
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
    mask_tracebacks()
    try:
        _settle()
        _run()
    except GlitError as error:
        errors.print(f"glit: {error}", markup=False)
        sys.exit(error.exit_code)


def _settle() -> None:
    """Check the process's file name encoding and working folder, and handle SIGHUP as SIGTERM.

    Raises:
        UserError: file names cannot be read here, or the working folder is gone.
    """
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        raise UserError(
            f"Python reads file names as {encoding} here, which not every name is; set PYTHONUTF8=1"
        )
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UserError("the folder that this runs in is gone; change to another") from error
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else nohup, or a caller's own
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


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
        return f"glit: warning: {masked(str(message))}\n"
    return masked(plain(message, category, filename, lineno, line))


def _run() -> None:
    """Run the app; report a missing optional package as a :class:`MissingExtraError`."""
    try:
        app()
    except ModuleNotFoundError as error:
        module = error.name or ""
        extra = extra_with(module)
        if extra is None:
            raise
        missing = MissingPackage(package=module, extra=extra, needed_for="this command")
        raise MissingExtraError(missing) from error
