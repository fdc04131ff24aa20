"""``glit train`` and ``glit interpolate``."""

from __future__ import annotations

import json
import signal
from typing import Annotated, Any

import typer

from glit import api
from glit.cli.derived import command, command_of
from glit.cli.options import progress_bar
from glit.runtime.progress import duration
from glit.runtime.ranks import rank
from glit.runtime.terminal import Console
from glit.storage.outputs import local_folder


@command_of(api.train)
def train_command(
    *,
    dataset: str,
    run: Annotated[str, typer.Option("-o", "--output")],
    recipe: str | None = None,
    resume: bool,
    offline: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Fine-tune CLIP on a dataset. Under torchrun, uses several processes.

    Args:
        recipe: a built-in recipe or a TOML file. Default: fast-goal on a GPU, else mini; with
            ``resume``, the run's own settings.
        as_json: print metrics as JSON lines.
    """
    from glit.recipes.extras import require

    require("train", needed_for="glit train")
    from glit.evaluation.validation import open_validation
    from glit.models.clip.runs import model_of_run
    from glit.pipeline.planning.recipe import known_tables
    from glit.training.checks import short_text_note
    from glit.training.loop import train
    from glit.training.run_file import config_of, trained_parameters

    folder = local_folder(run)
    console = Console(stderr=as_json, highlight=False, quiet=rank() > 0)  # torchrun starts several

    def report(line: dict[str, float | int | str]) -> None:
        if as_json:
            print(json.dumps(line), flush=True)
        elif not quiet:
            console.print(_progress_line(line))

    if recipe is None and not resume:
        recipe = _default_recipe(console)
    config = config_of(folder, recipe=recipe, resume=resume, known_tables=known_tables, **given)
    if not (quiet or as_json):
        console.print(f"loading {config.model} for {config.objective} on {dataset}", soft_wrap=True)
        if note := short_text_note(config, dataset):
            console.print(note, soft_wrap=True)
    result = train(
        config, dataset, folder, resume=resume, report=report, open_measure=open_validation
    )
    if result.interrupted:
        console.print(
            f"stopped after step {result.step} of {result.total_steps}; continue with --resume"
        )
        raise typer.Exit(128 + (result.signum or signal.SIGINT))
    taken = model_of_run(folder).checkpoint
    console.print(
        f"trained {result.step} step{'s' * (result.step != 1)}, {trained_parameters(folder)}; "
        f"glit eval takes {folder / taken.partition(',')[0]} ({taken})",
        soft_wrap=True,
    )


@command
def interpolate_command(
    *,
    start: Annotated[str, typer.Argument()],
    end: Annotated[str, typer.Argument()],
    output: str,
    alpha: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    quiet: bool = False,
) -> None:
    """Interpolate the weights of a model and its fine-tuned version (WiSE-FT).

    Args:
        start: the model that END was fine-tuned from.
        end: a run of glit train (its best checkpoint), or a folder.
        output: the folder to write.
        alpha: position between START (0) and END (1).
    """
    from glit.recipes.extras import require

    require("models", needed_for="glit interpolate")
    from glit.training.interpolate import interpolate

    folder = local_folder(output)
    with progress_bar(quiet=quiet) as progress:
        checkpoint = interpolate(start, end, folder, alpha=alpha, progress=progress)
    console = Console(highlight=False)
    of = f" ({checkpoint})" if checkpoint else ""
    console.print(f"{alpha:g} of the way from {start} to {end}{of}: {folder}", soft_wrap=True)


def _default_recipe(console: Console) -> str:
    """``fast-goal`` if there is a GPU; else ``mini``, with a note on the console."""
    from glit.models.device import best_device

    if best_device() == "cuda":
        return "fast-goal"
    console.print("no GPU and no recipe given: using the recipe 'mini' (its embedded CLIP)")
    return "mini"


def _progress_line(line: dict[str, float | int | str]) -> str:
    if "loss" not in line:
        figures = [
            f"{name.removeprefix('validation_').replace('_', ' ')} {value:.4f}"
            for name, value in line.items()
            if name.startswith("validation_")
        ]
        return f"step {line['step']}/{line['total_steps']}  validation: " + "  ".join(figures)
    left = float(line["total_steps"]) - float(line["step"])
    left_s = left / max(float(line["steps_per_s"]), 1e-9)
    return (
        f"step {line['step']}/{line['total_steps']}  epoch {line['epoch']}  "
        f"loss {line['loss']:.4f}  lr {line['lr']:.2e}  {line['samples_per_s']:.1f} samples/s  "
        f"{duration(left_s)} left"
    )
