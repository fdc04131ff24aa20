"""Compare objectives on drawn scenes: ``python -m tools.measure.objectives -o OUT``.

``glit bench objectives`` compares on datasets of your own. Takes hours; resumable.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from glit.bench.objectives.run import MINI_STARTS, ComparisonRequest, run
from glit.errors import UserError
from glit.storage.folder_lock import folder_lock
from tools.measure.console import ended, say
from tools.measure.scene_world import Scenes


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.objectives", description=__doc__)
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, help="the folder for runs and tables")
    add("--objective", action="append", help="one, or one with settings: 'long-clip epochs=1'; "
        "repeatable; the others are compared with the first")  # fmt: skip
    add("--size", type=int, action="append", help="training scenes; repeatable; default 1200")
    add("--lr", type=float, action="append", help="a learning rate of the grid; repeatable")
    add("--seeds", type=int, default=3, help="runs at the best learning rate")
    add("--epochs", type=int, help="passes over the training set")
    add("--gallery", type=int, default=2000, help="test scenes in the gallery, at least 8")
    add("--level", choices=("hard", "varied"), default="varied", help="of the scenes")
    add("--start", default=MINI_STARTS[0], help="the model that every objective starts from")
    add("--neighbours", type=int, default=1, help="scenes side by side in a batch; 4 are twins")
    given = parser.parse_args()
    if not given.start:
        raise UserError("--start: is empty; name a model, or leave it out for mini-clip")
    own = Scenes()
    parts = {
        name: min(getattr(own, name), given.gallery) for name in ("twins", "local", "validation")
    }
    world = Scenes(level=given.level, gallery=given.gallery, start=given.start, **parts)
    named = {"objectives": "objective", "sizes": "size", "lrs": "lr", "epochs": "epochs"}
    wanted = {key: value for key, name in named.items() if (value := getattr(given, name))}
    request = ComparisonRequest(
        output=given.output,
        world=world,
        num_seeds=given.seeds,
        together=given.neighbours,
        **wanted,
    )
    with folder_lock(given.output):
        print(run(request, say))
    say(f"wrote objectives.md and objectives.json in {given.output}")


if __name__ == "__main__":
    ended(main)
