"""A folder becomes Parquet: bytes, captions, hash, size upright."""

from __future__ import annotations

import hashlib
import io
import json
import os
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


def _img2dataset(inputs: Path, out: Path) -> Work:
    """Its reader, downloader and writer in this process; its main program starts others."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import pyarrow.parquet as pq
    from img2dataset.downloader import Downloader
    from img2dataset.reader import Reader
    from img2dataset.resizer import Resizer
    from img2dataset.writer import ParquetSampleWriter

    (out / "lists").mkdir()
    (out / "data").mkdir()

    def work() -> list[Any]:
        lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        folder = (inputs / "scenes" / "images").resolve()
        rows = [{**row, "url": (folder / row["path"]).as_uri()} for row in map(json.loads, lines)]
        (out / "list.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        lists = Reader(
            str(out / "list.jsonl"), "jsonl", "url", "caption", None, None, None, 100, set(),
            str(out / "lists"),
        )  # fmt: skip
        resizer = Resizer(
            image_size=256, resize_mode="no", resize_only_if_bigger=False, skip_reencode=True
        )
        download = Downloader(
            sample_writer_class=ParquetSampleWriter, resizer=resizer, thread_count=16,
            save_caption=True, extract_exif=False, output_folder=str(out / "data"),
            column_list=lists.column_list, timeout=10, number_sample_per_shard=100,
            oom_shard_count=5, compute_hash="sha256", verify_hash_type=None, encode_format="jpg",
            retries=0, user_agent_token=None, disallowed_header_directives=None,
        )  # fmt: skip
        for each in lists:
            download(each)
        columns = ["sha256", "original_width", "original_height", "jpg"]
        found = [pq.read_table(file, columns=columns) for file in (out / "data").glob("*.parquet")]
        return sorted(
            [row["sha256"], [row["original_width"], row["original_height"]]]
            for table in found for row in table.to_pylist() if row["jpg"]
        )  # fmt: skip

    return work


COMPARISON = Comparison(
    title="600 images with captions: hashed, measured upright, written to Parquet",
    ways=(
        Way(name="glit", prepare=_glit_parquet, note="cuts sentences and counts tokens too"),
        Way(name="datasets", prepare=_hf_parquet, package="datasets"),
        Way(name="Daft", prepare=_daft_parquet, package="daft"),
        Way(
            name="img2dataset", prepare=_img2dataset, package="img2dataset", note="from file: URLs"
        ),
    ),
)
