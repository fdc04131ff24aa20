"""A messy folder: which images are damaged, bad or repeated?"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from PIL import Image

from tools.measure.peers.inputs import build
from tools.measure.peers.way import Comparison, Way, Work


def _glit_messy(inputs: Path, out: Path) -> Work:
    import glit

    folder = inputs / "messy"
    settings = [
        "ingest.min_side=64", "ingest.near_duplicates=6", "quality.enabled=true",
        "quality.min_sharpness=50", "quality.min_contrast=0.05", "quality.min_brightness=0.1",
        "quality.max_aspect=4",
    ]  # fmt: skip
    build(folder, out / "imports", limit=2)

    def work() -> dict[str, str]:
        build(folder, out / "dataset", settings=settings)
        dataset = glit.open_dataset(out / "dataset")
        gone = {row.source_path for row in dataset.rows(images=False)}
        names = {path.name for path in (folder / "images").iterdir()}
        return {name: "" if name in gone else "out" for name in sorted(names)}

    return work


def _glit_repeats(inputs: Path, out: Path) -> Work:
    """glit's hashes and its search for images that look the same, without a dataset."""
    import pyarrow as pa

    from glit.stages.dedup import find_duplicates
    from glit.stages.ingest import IngestConfig, ingest
    from glit.storage.store import Entry, Store

    folder = inputs / "messy" / "images"
    config = IngestConfig(near_duplicates=6)
    texts = [(name, pa.string()) for name in ("sample_id", "source_path", "drop")]
    schema = pa.schema([*texts, ("perceptual_hash", pa.int64()), ("colours", pa.binary())])

    def work() -> dict[str, str]:
        paths = sorted(folder.iterdir())
        entries = [Entry(path.name, path.stat().st_size, "") for path in paths]
        rows = [
            {**row, "drop": "dropped" if row.get("drop") else None}
            for row in ingest(entries, Store(str(folder)), config)
        ]
        table = pa.Table.from_pylist(rows, schema)
        gone = {each.source_path for each in find_duplicates([(0, table)], near_bits=6)}
        return {path.name: "out" if path.name in gone else "" for path in paths}

    return work


def _cleanvision(inputs: Path, out: Path) -> Work:
    from cleanvision import Imagelab

    def work() -> dict[str, str]:
        folder = inputs / "messy" / "images"
        names = sorted(path.name for path in folder.iterdir())
        lab = Imagelab(filepaths=[str(folder / name) for name in names if _opens(folder / name)])
        lab.find_issues(n_jobs=1, verbose=False)
        issues = lab.issues
        flags = issues[[column for column in issues if column.startswith("is_")]].any(axis=1)
        found = {os.path.basename(path): "out" if flag else "" for path, flag in flags.items()}
        return {name: found.get(name, "out") for name in names}

    return work


def _opens(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except OSError:
        return False
    return True


def _imagededup(inputs: Path, out: Path) -> Work:
    from imagededup.methods import PHash

    def work() -> dict[str, str]:
        folder = inputs / "messy" / "images"
        method = PHash(verbose=False)
        gone = set(method.find_duplicates_to_remove(
            image_dir=str(folder), max_distance_threshold=6, num_enc_workers=0, num_dist_workers=0,
        ))  # fmt: skip
        return {path.name: "out" if path.name in gone else "" for path in sorted(folder.iterdir())}

    return work


def _judge(inputs: Path, answer: Any, ours: Any) -> str:
    """How many of the truly bad and repeated images an answer leaves out, and of the good ones."""
    truth = json.loads((inputs / "messy" / "truth.json").read_text(encoding="utf-8"))
    good, found = [], {"bad": [0, 0], "repeats": [0, 0]}
    for name, told in truth.items():
        kind = told["fate"].split()[0]
        if kind == "double":
            if "-2." in name:  # one of the two has to go
                pair = [name, told["of"]]
                found["repeats"][0] += any(answer[each] for each in pair if each in answer)
                found["repeats"][1] += 1
        elif kind in ("good", "test"):
            good.append(not answer[name])
        else:
            found["bad"][0] += bool(answer[name])
            found["bad"][1] += 1
    told = ", ".join(f"{right} of {number} {name}" for name, (right, number) in found.items())
    return f"{told} found; {len(good) - sum(good)} of {len(good)} good ones taken"


COMPARISON = Comparison(
    title="a messy folder: which images to leave out",
    judge=_judge,
    ways=(
        Way(name="glit", prepare=_glit_messy, note="writes the dataset too"),
        Way(name="glit, repeats alone", prepare=_glit_repeats, note="repeats only"),
        Way(name="cleanvision", prepare=_cleanvision, package="cleanvision"),
        Way(name="imagededup", prepare=_imagededup, package="imagededup", note="repeats only"),
    ),
)
