"""A dataset, and more images in the folder that it was built from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from building import edit_state, quiet
from rich.console import Console

from glit.dataset.reader import Dataset
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.runtime.progress import StageProgress

OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=3", "propose.backend=grid"]
OLD = [f"{number:06d}.png" for number in range(2, 9)]
NEW = ["000000.png", "000001.png", "000009.png", "000010.png"]
FIRST = "train-a0001-00000-of-00001.parquet"
"""What the first addition of a few images writes."""


def put(scenes: Path, folder: Path, *names: str) -> Path:
    """Scenes with their captions beside; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in (scenes / "captions.jsonl").read_text().splitlines()]
    captions = {Path(row["path"]).name: row["caption"] for row in rows}
    for name in names:
        shutil.copy2(scenes / "images" / name, folder)
        (folder / name).with_suffix(".txt").write_text(captions[name])
    return folder


def put_more(scenes: Path, folder: Path) -> None:
    """Scenes before and after the old ones, a copy of an old one, and a file that is no image."""
    put(scenes, folder, *NEW)
    for suffix in (".png", ".txt"):
        shutil.copy2(folder / f"000003{suffix}", folder / f"000000-copy{suffix}")
    (folder / "bad.png").write_bytes(b"no image")


def moved(folder: Path, target: Path, *, symlinks: bool = False) -> Path:
    """A copy that works as if it had been built there."""
    shutil.copytree(folder, target, symlinks=symlinks)
    edit_state(target / "out" / "work", lambda told: told.update(images=str(target / "in")))
    return target


def run_add(world: Path, *, executor=None, progress=None, **options):
    return add(str(world / "out"), executor or LocalExecutor(), progress or quiet(), **options)


def rows(dataset: Path, *left_out: str) -> dict[str, dict]:
    """By sample, everything that the dataset says of it."""
    table = Dataset(dataset).table()
    return {row["sample_id"]: row for row in table.drop_columns(list(left_out)).to_pylist()}


def everything(dataset: Path) -> dict[str, bytes]:
    """The dataset's files, but not its work folder."""
    return {
        str(path.relative_to(dataset)): path.read_bytes()
        for path in sorted(dataset.rglob("*"))
        if path.is_file() and path.relative_to(dataset).parts[0] != "work"
    }


class Notes(StageProgress):
    def __init__(self):
        super().__init__(Console(quiet=True), quiet=True)
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)
