"""A messy folder with known truth, of good images, and what a dataset made of it.

    python -m tools.messy make IMAGES OUT --captions captions.jsonl
    python -m tools.messy check OUT DATASET

``make`` deals every good image one fate of :data:`FATES` and writes ``OUT/images``,
``OUT/captions.jsonl``, ``OUT/test-set`` (the images that a dataset must not hold) and
``OUT/truth.json``. ``check`` tells, by fate, how many images left the dataset and for what reason,
and how many that each reason took it was right to take.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from mimetypes import guess_type
from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from rich.console import Console

from glit.dataset.reader import Dataset
from glit.runtime.tables import Table

Change = Callable[[Image.Image], Image.Image]
GOOD = "good"


def _crop(image: Image.Image, share: float = 0.9) -> Image.Image:
    left, top = (round(side * (1 - share) / 2) for side in image.size)
    return image.crop((left, top, image.width - left, image.height - top))


def _half(image: Image.Image) -> Image.Image:
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


def _grey(image: Image.Image) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(0.03)


CHANGES: dict[str, Change] = {
    "blurred": lambda x: x.filter(ImageFilter.GaussianBlur(max(x.size) / 120)),
    "dark": lambda x: ImageEnhance.Brightness(x).enhance(0.05),
    "flat": _grey,
    "tiny": lambda x: ImageOps.contain(x, (30, 30)),
    "long": lambda x: x.crop((0, 0, x.width, x.width // 5)),
    "double again": lambda x: x,
    "double half": _half,
    "test again": lambda x: x,
    "test half": _half,
    "test mirrored": ImageOps.mirror,
    "test recoloured": lambda x: ImageEnhance.Color(x).enhance(1.6),
    "test cropped": _crop,
}
"""What is done to an image before it is saved, as JPEG at quality 75."""
FATES = (GOOD, "broken", GOOD, "double same", GOOD, "test same", *CHANGES)
"""What becomes of images, in turn."""
MEANT = {
    "broken": "corrupt",
    "tiny": "too_small",
    "double": "duplicate",
    "test": "in_evaluation",
}
"""The reason a fate should be dropped for, by its first word; ``low_quality`` for all others."""


def meant(fate: str) -> str:
    """The reason for which images of a fate should leave; empty for good ones."""
    return "" if fate == GOOD else MEANT.get(fate.split()[0], "low_quality")


def make(images: Path, out: Path, *, captions: Path | None, seed: int) -> None:
    """Write a messy folder; see the module."""
    for name in ("images", "test-set"):
        (out / name).mkdir(parents=True)
    texts = {} if captions is None else _captions(captions)
    truth, lines = {}, []
    paths = sorted(
        p for p in images.iterdir() if (guess_type(p.name)[0] or "").startswith("image/")
    )
    random.Random(seed).shuffle(paths)
    for number, path in enumerate(paths):
        fate = FATES[number % len(FATES)]
        for name in _written(path, fate, out):
            truth[name] = {"fate": fate, "of": path.name}
            lines.append({"path": name, "caption": texts.get(path.name, "A picture.")})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / "captions.jsonl").write_text(text, encoding="utf-8")
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


def _captions(path: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {Path(row["path"]).name: row["caption"] for row in rows}


def _written(path: Path, fate: str, out: Path) -> list[str]:
    """Write the files of one image; their names in ``OUT/images``."""
    kind = fate.split()[0]
    name, second = path.name, f"{path.stem}-2{path.suffix}"
    if fate in CHANGES:
        second = f"{path.stem}-2.jpg"
    if kind == "test":
        shutil.copy(path, out / "test-set" / name)
    names = [name, second] if kind == "double" else [name if kind in (GOOD, "broken") else second]
    for each in names:
        target = out / "images" / each
        if each == name or fate not in CHANGES:
            shutil.copy(path, target)
        else:
            with Image.open(path) as image:
                upright = ImageOps.exif_transpose(image).convert("RGB")
            CHANGES[fate](upright).save(target, quality=75)
        if kind == "broken":
            target.write_bytes(target.read_bytes()[: target.stat().st_size // 3])
    return names


def check(messy: Path, dataset: str) -> tuple[list[dict], list[dict]]:
    """What became of the images, and how right each reason was.

    Returns:
        By fate: ``fate``, ``images`` (of doubles, pairs of them), ``gone`` and ``reasons``. By
        reason: ``reason``, ``dropped``, and how many of these it was ``right`` to drop.
    """
    truth = json.loads((messy / "truth.json").read_text(encoding="utf-8"))
    reasons = {row.source_path: "" for row in Dataset(dataset).rows(images=False)}
    for name in ("drops", "duplicates"):
        for row in pq.read_table(Path(dataset) / f"{name}.parquet").to_pylist():
            reasons[row["source_path"]] = row.get("reason", "duplicate")
    fates: dict[str, list[str]] = {}
    right: Counter[str] = Counter()
    for name, told in truth.items():
        reason = reasons.get(name, "lost")
        fates.setdefault(told["fate"], []).append(reason)
        right[reason] += reason == meant(told["fate"])
    by_fate = []
    for fate in (each for each in dict.fromkeys(FATES) if each in fates):
        found = fates[fate]
        gone = sum(bool(reason) for reason in found)
        number = len(found) // 2 if fate.startswith("double") else len(found)
        counted = dict(Counter(reason for reason in found if reason))
        by_fate.append({"fate": fate, "images": number, "gone": gone, "reasons": counted})
    dropped = Counter(reason for found in fates.values() for reason in found if reason)
    return by_fate, [
        {"reason": reason, "dropped": number, "right": right[reason]}
        for reason, number in sorted(dropped.items())
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A messy folder with known truth.")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="write one")
    making.add_argument("images", type=Path, help="a folder of good images, all different")
    making.add_argument("out", type=Path, help="a folder that does not exist yet")
    making.add_argument("--captions", type=Path, help="JSON lines with path and caption")
    making.add_argument("--seed", type=int, default=0)
    checking = commands.add_parser("check", help="what a dataset made of it")
    checking.add_argument("messy", type=Path)
    checking.add_argument("dataset")
    told = parser.parse_args()
    if told.command == "make":
        make(told.images, told.out, captions=told.captions, seed=told.seed)
        return
    for rows in check(told.messy, told.dataset):
        cells = [[str(value) for value in row.values()] for row in rows]
        Table(heads=list(rows[0]), rows=cells).show(Console())


if __name__ == "__main__":
    main()
