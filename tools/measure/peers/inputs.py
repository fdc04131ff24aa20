"""The inputs of all comparisons, made once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from glit.clip.random_clip import VIT_B_16, write_random_clip
from glit.scenes import write_scenes
from tools import messy

SCENE_PX, SCENES = 512, 600
BATCH = 32
CONTEXT = 77


def captions(inputs: Path) -> list[str]:
    """Return 6,000 captions of scenes, ten of each."""
    lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["caption"] for line in lines]
    return [f"This is view {view} of it. {text}" for view in range(10) for text in texts]


def build(folder: Path, out: Path, **options: Any) -> None:
    """Build a folder's images with its captions, without models."""
    import glit

    glit.build(
        folder / "images", out, recipe="captions-only", captions=folder / "captions.jsonl",
        executor="local", quiet=True, **options,
    )  # fmt: skip


def make_inputs(folder: Path, photographs: Path | None) -> None:
    """Draw scenes, make a messy folder of some, a dataset, its exports, and a model."""
    import glit

    if (folder / "done").exists():
        return
    scenes = folder / "scenes"
    write_scenes(scenes, num=SCENES, seed=0, size=SCENE_PX, image_format="jpeg")
    messy.make(photographs or scenes / "images", folder / "messy", captions=None, seed=0)
    build(scenes, folder / "dataset")
    _write_tars(folder / "dataset", folder / "tars")
    glit.export(folder / "dataset", to="hf", output=folder / "hf")
    write_random_clip(
        folder / "clip", VIT_B_16, seed=0, corpus=captions(folder)[:200], embedding_rows=49_408
    )
    (folder / "done").touch()


def _write_tars(dataset: Path, folder: Path) -> None:
    """The samples in tar files of a hundred, by webdataset's own writer if it is installed."""
    if not importlib.util.find_spec("webdataset"):
        return
    import webdataset

    import glit

    writer: Any = webdataset
    folder.mkdir()
    with writer.ShardWriter(str(folder / "%03d.tar"), maxcount=100, verbose=0) as tars:
        for row in glit.open_dataset(dataset).rows():
            tars.write({"__key__": row.sample_id[:16], "jpg": row.image, "txt": row.caption.text})
