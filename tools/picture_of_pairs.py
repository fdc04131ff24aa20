"""The picture of docs/pairs.md: ``python -m tools.picture_of_pairs``.

One hard scene by the mini matcher: the cosines that argmax looks at, and the values of the
recommended rule, with the pair that each puts first.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from glit.bench.pictures import picture
from glit.bench.scenes import build_scenes
from glit.dataset.row import Row
from glit.rules.pairing import Pairing
from glit.scenes import write_scenes
from glit.stages.pair import PairConfig
from glit.stages.recipe import load_recipe

_ARGMAX, _BETTER = "#d55e00", "#0072b2"  # told apart by everyone
_GRID = {"quadrant": "quad", "centre": "mid"}


def main() -> None:
    """Build a few scenes, draw one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/pairs.png"))
    parser.add_argument("--seed", type=int, default=2_000_040)
    parser.add_argument("--number", type=int, default=0, help="which of the scenes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_scenes(folder, num=arguments.number + 2, seed=arguments.seed, level="hard", size=256)
        captions = folder / "captions.jsonl"
        dataset = build_scenes(folder, folder / "dataset", captions=captions, recipe="glit-mini")
        rows = {row.source_path: row for row in dataset.rows()}
        draw(rows[f"{arguments.number:06d}.png"], arguments.output)


def draw(row: Row, output: Path) -> None:
    """The image with both best pairs, and both matrices."""
    argmax = load_recipe("mini").of(PairConfig).make_pairing(None)
    config = load_recipe("glit-mini").of(PairConfig)
    better = Pairing(rule=config.make_rule())
    rules = (
        ("argmax: the highest cosine", argmax, _ARGMAX),
        ("glit: above the sentence's own mean", better, _BETTER),
    )
    layout: Any = {"figsize": (13, 5), "ncols": 4, "width_ratios": (1.2, 0.62, 1, 1)}
    with picture(output, style={"font.size": 9}, **layout) as (figure, (shown, names, *matrices)):
        figure.subplots_adjust(left=0.01, right=0.99, top=0.92, bottom=0.17, wspace=0.06)
        names.set_axis_off()  # the sentences stand there
        shown.imshow(row.pixels())
        shown.set_axis_off()
        lines = []
        for at, (title, pairing, colour) in enumerate(rules):
            best = pairing(row.scores, row.regions, row.sentences)[0]
            x0, y0, x1, y1 = row.regions[best.region].box.xyxy
            shown.add_patch(
                Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linewidth=4)
            )
            lines.append((colour, row.sentences[best.sentence].text))
            value, chosen = (
                pairing.rule(row.scores, row.regions).value,
                (best.sentence, best.region),
            )
            _matrix(matrices[at], row, value, title, colour, chosen, names=at == 0)
        shown.set_title("The pair that each puts first", fontsize=11, weight="bold", loc="left")
        for number, (colour, text) in enumerate(lines):
            told = "\n".join(textwrap.wrap(text, 64))
            shown.text(
                0, -0.03 - 0.075 * number, told, color=colour, va="top",
                transform=shown.transAxes, fontsize=10,
            )  # fmt: skip


def _matrix(
    axes: Any, row: Row, matrix: np.ndarray, title: str, colour: str,
    best: tuple[int, int], *, names: bool,
) -> None:  # fmt: skip
    """Sentences by regions, dark where the rule's value is high; the first pair framed."""
    axes.imshow(matrix, cmap="Greys", aspect="auto")
    axes.add_patch(
        Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=3)
    )
    columns = [_GRID.get(region.source, "object") for region in row.regions]
    axes.set_xticks(range(len(columns)), columns, rotation=60, fontsize=8)
    short = [textwrap.shorten(s.text, 40, placeholder=" …") if names else "" for s in row.sentences]
    axes.set_yticks(range(len(short)), short, fontsize=8.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=11, weight="bold", loc="left", color=colour)


if __name__ == "__main__":
    main()
