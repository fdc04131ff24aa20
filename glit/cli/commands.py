"""The commands by what they are for, and the group that imports a command when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from glit.recipes import plugins

PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "Build a dataset": {
        "doctor": ("doctor", "Check whether a build would work here; estimate time and disk."),
        "estimate": ("doctor", "Estimate a large build from a small one."),
        "recipes": ("recipes", "List the recipes and their missing models and packages."),
        "build": ("build", "Build a dataset from images."),
        "status": ("inspect", "Show what is done, pending and dropped, per stage."),
        "add": ("build", "Add new images without redoing the old ones."),
        "retry": ("build", "Process the dropped samples again and merge the ones that succeed."),
        "trust": ("build", "Confirm a recipe file that asks for what may do harm."),
        "lock": ("build", "Record the models of a recipe on this machine."),
        "clean": ("inspect", "Remove the resumable state (work/)."),
    },
    "Look at it": {
        "view": ("look", "Write an HTML report of a dataset, a comparison or training runs."),
        "explain": ("look", "Follow one image from its file to its pairs."),
        "query": ("inspect", "Query the dataset with SQL, read-only."),
        "stats": ("inspect", "Count words, sentences and tokens of captions."),
        "audit": ("audit", "Look for faults in a dataset or a published file."),
        "verify": ("inspect", "Check every promise of the data format."),
    },
    "Change it": {
        "pairs": (
            "pairs",
            "Judge and correct pairs by eye; certify a dataset; calibrate its rule.",
        ),
        "pair": ("curate", "Write the dataset with the pairs of another rule."),
        "select": ("curate", "Write some samples as a new dataset, or divide them into parts."),
        "merge": ("curate", "Write the samples of several datasets as one."),
        "overlap": ("curate", "Find a dataset's images that resemble one of a test set."),
    },
    "Share it": {
        "import": ("imports", "Convert published captions to a file for glit build --captions."),
        "export": ("share", "Write the dataset, or the samples of a condition, in another format."),
        "attach": ("share", "Find the pictures of a dataset that was published without them."),
        "push": ("share", "Upload a finished dataset to the Hugging Face Hub."),
    },
    "Learn from it": {
        "train": ("train", "Fine-tune CLIP on a dataset."),
        "eval": ("evaluate", "Measure one model, or several with --compare, in one table."),
        "import-model": (
            "imports",
            "Convert a published checkpoint of a CLIP, such as Long-CLIP's, or of SAM.",
        ),
    },
    "Try and research": {
        "sample": ("sample", "Write twelve photographs with captions and boxes made by hand."),
        "scenes": ("scenes", "Draw procedural scenes with long captions and ground truth."),
        "bench": ("bench", "Measure speed and compare objectives, in ratios on one machine."),
        "interpolate": ("train", "Interpolate the weights of a model and its fine-tuned version."),
    },
}
"""By panel and name of a command: its module below ``glit.cli``, and its line in ``glit --help``,
with which its own text begins. It is the module's ``NAME_command``, a function or a Typer."""


class LazyGroup(TyperGroup):
    """All commands: their lines for help and completion, and one imported when it runs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()
        self._listed = {
            name: TyperCommand(name, help=line, rich_help_panel=panel)
            for panel, commands in PANELS.items()
            for name, (_, line) in commands.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in their order."""
        return [*self._listed]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command without its options, for pages that list it."""
        return self._listed.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that the first word names, and return it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and self.commands[name], rest


class _Commands(Mapping[str, Any]):
    """The commands by name; to read one imports it."""

    def __iter__(self) -> Iterator[str]:
        return (name for commands in PANELS.values() for name in commands)

    def __len__(self) -> int:
        return sum(map(len, PANELS.values()))

    def __getitem__(self, name: str) -> Any:
        for panel, commands in PANELS.items():
            if name in commands:
                plugins.load_installed()
                module = importlib.import_module(f"glit.cli.{commands[name][0]}")
                app = getattr(module, f"{name.replace('-', '_')}_command")
                if not isinstance(app, typer.Typer):
                    function, app = app, typer.Typer(add_completion=False)
                    app.command(name, cls=_Command)(function)
                command: Any = typer.main.get_command(app)
                command.name, command.rich_help_panel = name, panel
                return command
        raise KeyError(name)


class _Command(TyperCommand):
    """A command whose message about too many words says what the cause usually is."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if (rest := super().parse_args(ctx, args)) and not ctx.resilient_parsing:
            some = " ".join(rest[:3]) + (" …" if len(rest) > 3 else "")
            ctx.fail(
                f"{len(rest)} words too many: {some}; a pattern such as 'photos/*.jpg' goes in "
                "quotes, and a name with a blank too"
            )
        return rest
