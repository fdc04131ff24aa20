"""``make demo``: scenes, a dataset, its checks, a short fine-tune, and what to do next.

python -m tools.demo --output demo [--images FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

NUM_SCENES = 200
SEED = 2_000_000  # of the test scenes: the mini models have never seen them
NUM_HELD_OUT = 100
HELD_OUT_SEED = 2_900_000


def main() -> None:
    """Run the demo; every step is the command a user would type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    parser.add_argument("--images", type=Path, help="your own folder instead of scenes")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    images = arguments.images or _scenes(arguments.output / "scenes", NUM_SCENES, SEED, console)
    dataset = arguments.output / "dataset"
    _glit(console, "build", images, "-o", dataset, "-r", "mini", "--replace")
    _glit(console, "verify", dataset)
    _summary(console, dataset)
    report = arguments.output / "report.html"
    _glit(console, "view", dataset, "-o", report)
    if arguments.images is None:
        _learn(arguments.output, dataset, console)
    _next_steps(console, dataset)
    if arguments.images is not None:
        console.print(
            "\nThese boxes and sentences come from the mini models, which know only glit's "
            "scenes.\nFor photographs: glit build FOLDER -o DATASET -r laptop (or -r flism)."
        )
    console.print(f"\n[bold]Look at it:[/bold] {report.resolve().as_uri()}", soft_wrap=True)


def _scenes(folder: Path, num: int, seed: int, console: Console) -> Path:
    """The folder's images, drawn unless an earlier demo has."""
    if not (folder / "captions.jsonl").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _glit(console, "scenes", "-o", folder, "-n", num, "--seed", seed)
    return folder / "images"


def _learn(output: Path, dataset: Path, console: Console) -> None:
    """A short fine-tune, measured on scenes that neither it nor the mini models have seen."""
    run, held_out = output / "run", output / "held-out-dataset"
    shutil.rmtree(run, ignore_errors=True)
    _glit(console, "train", dataset, "-o", run, "-r", "mini")
    images = _scenes(output / "held-out", NUM_HELD_OUT, HELD_OUT_SEED, console)
    _glit(console, "build", images, "-o", held_out, "-r", "mini",
          "--executor", "local", "--replace")  # fmt: skip
    _glit(console, "eval", "retrieval", run, held_out, "--compare", "mini-matcher",
          "-o", output / "scores")  # fmt: skip


def _glit(console: Console, *words: object) -> None:
    console.print(f"\n[bold]$ glit {' '.join(map(str, words))}[/bold]", soft_wrap=True)
    done = subprocess.run([sys.executable, "-m", "glit", *map(str, words)], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def _summary(console: Console, dataset: Path) -> None:
    from glit.dataset.query import query

    best = query(
        str(dataset),
        """
        WITH matched AS (
            SELECT source_path, sentences, regions, unnest(pairs) AS pair FROM samples
        ), best AS (
            SELECT source_path, sentences[pair.sentence + 1].text AS sentence,
                   regions[pair.region + 1] AS region, pair.similarity AS similarity
            FROM matched
            WHERE regions[pair.region + 1].source NOT IN ('quadrant', 'centre')
            QUALIFY row_number() OVER (PARTITION BY source_path ORDER BY similarity DESC) = 1
        )
        SELECT * FROM best ORDER BY similarity DESC, source_path LIMIT 5
        """,
    ).fetchall()
    table = Table(
        "image", "sentence", "its region", "cosine", title="The best-matched objects of five images"
    )
    for path, sentence, region, similarity in best:
        box = ", ".join(f"{region[key]:.0f}" for key in ("x0", "y0", "x1", "y1"))
        table.add_row(path, sentence, f"{region['source']} ({box})", f"{similarity:.2f}")
    console.print()
    console.print(table if best else "The detector found no object that it is sure of.")


def _next_steps(console: Console, dataset: Path) -> None:
    console.print(
        f"""
Where everything lies
  {dataset}/data/*.parquet      images, captions, sentences, regions, similarities, pairs
  {dataset}/manifest.json       how it came to be;  {dataset}/README.md  its card
  {dataset}/drops.parquet       what was left out, and why

What to do next
  make demo IMAGES=folder       the same on your own images
  .venv/bin/glit query {dataset} "SELECT caption FROM samples LIMIT 3"
  .venv/bin/glit view {dataset.parent}/run {dataset.parent}/scores -o run.html
  .venv/bin/glit doctor FOLDER  would a build of your images work here, and what would it take
  .venv/bin/glit build FOLDER -o DATASET -r laptop      real photographs on a CPU""",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
