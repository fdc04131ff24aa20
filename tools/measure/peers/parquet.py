"""A folder becomes Parquet: bytes, captions, hash, size upright."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from tools.measure.peers.inputs import build
from tools.measure.peers.way import Comparison, Way, Work


def looked(data: bytes) -> dict[str, Any]:
    """Hash and upright size of an image that is decoded whole."""
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": list(upright.size)}


def _glit_parquet(inputs: Path, out: Path) -> Work:
    import glit

    build(inputs / "scenes", out / "imports", limit=2)

    def work() -> list[Any]:
        build(inputs / "scenes", out / "dataset")
        rows = glit.open_dataset(out / "dataset").rows(images=False)
        return sorted([row.sample_id, [row.width, row.height]] for row in rows)

    return work


def _hf_parquet(inputs: Path, out: Path) -> Work:
    import datasets

    datasets.disable_progress_bars()

    def work() -> list[Any]:
        lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        folder = inputs / "scenes" / "images"
        found = datasets.Dataset.from_list([
            {"image": str(folder / row["path"]), "caption": row["caption"]} for row in rows
        ])  # fmt: skip
        found = found.map(lambda row: looked(Path(row["image"]).read_bytes()))
        found = found.cast_column("image", datasets.Image())
        found.to_parquet(str(out / "data.parquet"))
        told: Any = found.remove_columns("image")
        return sorted([row["sha256"], row["size"]] for row in told)

    return work


def _daft_parquet(inputs: Path, out: Path) -> Work:
    import daft

    def work() -> list[Any]:
        lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        folder = inputs / "scenes" / "images"
        frame = daft.from_pydict({
            "path": [str(folder / row["path"]) for row in rows],
            "caption": [row["caption"] for row in rows],
        })  # fmt: skip
        frame = frame.with_column("image", frame["path"].download())

        @daft.func(return_dtype=daft.DataType.string())
        def look(data: bytes) -> str:
            return json.dumps(looked(data))

        frame = frame.with_column("looked", look(frame["image"]))
        frame.write_parquet(str(out / "data"))
        told = daft.read_parquet(str(out / "data")).select("looked").to_pydict()["looked"]
        return sorted([each["sha256"], each["size"]] for each in map(json.loads, told))

    return work


COMPARISON = Comparison(
    title="600 images with captions: hashed, measured upright, written to Parquet",
    ways=(
        Way(name="glit", prepare=_glit_parquet, note="cuts sentences and counts tokens too"),
        Way(name="datasets", prepare=_hf_parquet, package="datasets"),
        Way(name="Daft", prepare=_daft_parquet, package="daft"),
    ),
)
