"""``glit train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def train_command(
    dataset: Annotated[str, typer.Argument(help="A finished dataset.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The run's folder.")],
    recipe: Annotated[
        str | None,
        typer.Option("-r", "--recipe", help="A built-in recipe's name, or a TOML file."),
    ] = None,
    objective: Annotated[
        str | None, typer.Option("--objective", help="clip, local, global+local, fast-goal, ...")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="train.key=value, as often as you like.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")
    ] = False,
    ray_workers: Annotated[
        int,
        typer.Option("--ray-workers", min=0, help="Processes to start with Ray Train; 0: none."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print metrics as JSON lines.")] = False,
) -> None:
    """Fine-tune CLIP on a dataset; under torchrun, on several processes."""
    from transformers.utils import logging

    from glit.recipe import load_table
    from glit.train.launch import train_on_ray
    from glit.train.loop import train

    logging.disable_progress_bar()
    console = Console(stderr=as_json, highlight=False)
    name = recipe or _default_recipe(console)
    settings = list(overrides or [])
    if objective is not None:
        settings = [f"train.objective={objective}", *settings]
    config = load_table("train", name, overrides=settings)

    def report(line: dict[str, float | int | str]) -> None:
        if as_json:
            print(json.dumps(line), flush=True)
        else:
            console.print(_progress_line(line))

    if ray_workers:
        result = train_on_ray(config, dataset, output, num_workers=ray_workers, resume=resume)
    else:
        result = train(config, dataset, output, resume=resume, report=report)
    if result.interrupted:
        console.print(
            f"stopped after step {result.step} of {result.total_steps}; go on with --resume"
        )
        raise typer.Exit(130)
    console.print(f"trained {result.step} steps; the model is in {output / 'last'}")


def _default_recipe(console: Console) -> str:
    """The papers' settings where a GPU is at hand, else the mini model, which it says."""
    import torch

    if torch.cuda.is_available():
        return "fast-goal"
    console.print("no GPU and no recipe given: using the recipe 'mini' (its embedded CLIP)")
    return "mini"


def _progress_line(line: dict[str, float | int | str]) -> str:
    left = float(line["total_steps"]) - float(line["step"])
    minutes = left / max(float(line["steps_per_s"]), 1e-9) / 60
    return (
        f"step {line['step']}/{line['total_steps']}  epoch {line['epoch']}  "
        f"loss {line['loss']:.4f}  lr {line['lr']:.2e}  {line['samples_per_s']:.1f} samples/s  "
        f"{minutes:.0f} min left"
    )
