"""``make demo``: scenes, a dataset, its checks, a short fine-tune, and what to do next.

python -m tools.demo --output demo [--images FOLDER]
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from glit.doctor.inputs import look_at_images
from glit.doctor.models import Model, models
from glit.pipeline.planning.recipe import load_recipe
from glit.runtime.progress import size

RECIPE = "glit-mini"
FOR_PHOTOGRAPHS = ("laptop", "glit", "flism", "lism")
"""The first whose models are here is used."""
ROOT = Path(__file__).resolve().parent.parent
NUM_SCENES = 200
SEED = 2_000_000  # of the test scenes: the mini models have never seen them
NUM_HELD_OUT = 100
HELD_OUT_SEED = 2_900_000
BEST_MATCHED = """
SELECT source_path, text, source, x0, y0, x1, y1, similarity FROM pairs
WHERE NOT global_wins AND source NOT IN ('quadrant', 'centre')
QUALIFY row_number() OVER (PARTITION BY source_path ORDER BY similarity DESC) = 1
ORDER BY similarity DESC, source_path LIMIT 5
"""
"""The best-matched objects of five images."""


def main() -> None:
    """Run the demo; every step is the command a user would type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    parser.add_argument("--images", type=Path, help="your own folder instead of scenes")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    output, recipe = arguments.output, RECIPE
    images = arguments.images or _scenes(output / "scenes", NUM_SCENES, SEED, console)
    if arguments.images is not None:
        recipe = recipe_for(images)
    if recipe is None:
        _without_models(images, console)
        sys.exit(1)
    dataset = output / "dataset"
    _glit(console, "build", images, "-o", dataset, "-r", recipe, "--replace")
    _glit(console, "verify", dataset)
    _glit(console, "query", dataset, BEST_MATCHED)
    report = output / "report.html"
    _glit(console, "view", dataset, "-o", report)
    pages = {"Look at it": report}
    if recipe == RECIPE:
        pages["Why a rule matters: the same images, paired by argmax"] = _by_argmax(
            output, dataset, console
        )
    if arguments.images is None:
        _learn(output, dataset, console)
    _next_steps(console, dataset, learned=arguments.images is None)
    for title, page in pages.items():
        console.print(f"\n[bold]{title}:[/bold] {page.resolve().as_uri()}", soft_wrap=True)


def recipe_for(images: Path) -> str | None:
    """The recipe for a folder: the embedded models for scenes, real models for photographs.

    None if the images are photographs and the models of no recipe are on this machine.
    """
    recipe = load_recipe(RECIPE)
    seen, _ = look_at_images(str(images), recipe)
    if seen.decoded and seen.scenes >= len(seen.decoded) / 2:
        return RECIPE
    return next((name for name in FOR_PHOTOGRAPHS if not _missing(name)), None)


def _missing(recipe: str) -> list[Model]:
    return [model for model in models([load_recipe(recipe)]) if not model.here]


def _without_models(images: Path, console: Console) -> None:
    """What to fetch for photographs, and what works without it."""
    missing = _missing(FOR_PHOTOGRAPHS[0])
    fetch = "\n".join(f"  .venv/bin/{model.fetch}" for model in missing)
    weight = size(sum(model.num_bytes for model in missing))
    console.print(
        f"""
{images}: these are no glit scenes, and the embedded models understand only scenes.
No model for photographs is on this machine, so nothing was built.

Fetch the models of the recipe laptop (about {weight}), then give the same command again:
{fetch}

Without them, regions and sentence spans of your own captions can be had today. Pairs cannot: they
come from the embedded matcher here and mean nothing.

  .venv/bin/glit build {images} -o DATASET -r captions --captions my.jsonl \\
      --set propose.backend=grid --set score.model=mini-matcher
  .venv/bin/glit view DATASET -o report.html
  .venv/bin/glit export DATASET --to coco -o OUT

With a YOLO file, detected regions:
  --set propose.backend=yolo+grid --set propose.model=yolo11n.pt --set propose.allow_pickle=true

All the ways: docs/your-images.md""",
        soft_wrap=True,
        markup=False,
    )


def _scenes(folder: Path, num: int, seed: int, console: Console) -> Path:
    """The folder's images, drawn unless an earlier demo has."""
    if not (folder / "captions.jsonl").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _glit(console, "scenes", "-o", folder, "-n", num, "--seed", seed)
    return folder / "images"


def _by_argmax(output: Path, dataset: Path, console: Console) -> Path:
    """A page of the same dataset, every sentence with its most similar region."""
    other, page = output / "argmax-dataset", output / "argmax.html"
    shutil.rmtree(other, ignore_errors=True)
    _glit(console, "pair", dataset, "-o", other, "-r", "mini")
    _glit(console, "view", other, "-o", page)
    return page


def _learn(output: Path, dataset: Path, console: Console) -> None:
    """A short fine-tune, measured on scenes that neither it nor the mini models have seen."""
    run, held_out = output / "run", output / "held-out-dataset"
    shutil.rmtree(run, ignore_errors=True)
    _glit(console, "train", dataset, "-o", run, "-r", "mini")
    images = _scenes(output / "held-out", NUM_HELD_OUT, HELD_OUT_SEED, console)
    _glit(console, "build", images, "-o", held_out, "-r", RECIPE,
          "--executor", "local", "--replace")  # fmt: skip
    _glit(console, "eval", "retrieval", run, held_out, "--compare", "mini-matcher",
          "-o", output / "scores")  # fmt: skip


def _glit(console: Console, *words: object) -> None:
    console.print(f"\n[bold]$ glit {shlex.join(map(str, words))}[/bold]", soft_wrap=True)
    done = subprocess.run([sys.executable, "-m", "glit", *map(str, words)], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def _next_steps(console: Console, dataset: Path, *, learned: bool) -> None:
    run = (
        f"\n  .venv/bin/glit view {dataset.parent}/run {dataset.parent}/scores -o run.html"
        if learned
        else ""
    )
    console.print(
        f"""
Where everything lies
  {dataset}/data/*.parquet      images, captions, sentences, regions, similarities, pairs
  {dataset}/manifest.json       how it was built;   {dataset}/README.md  its card
  {dataset}/drops.parquet       what was dropped, and why

What to do next
  make demo IMAGES=folder       the same on your own images
  .venv/bin/glit query {dataset} "SELECT caption FROM samples LIMIT 3"{run}
  .venv/bin/glit doctor FOLDER  check whether a build of your images would work, estimate its time
  .venv/bin/glit build FOLDER -o DATASET -r laptop      photographs, on a CPU""",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
