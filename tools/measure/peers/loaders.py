"""Batches of 224 px squares and tokens from the finished dataset."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tools.measure.peers.inputs import BATCH, CONTEXT
from tools.measure.peers.way import Comparison, Way, Work

_SIDE = 224


def _glit_loader(inputs: Path, out: Path) -> Work:
    from glit.api import open_dataset
    from glit.clip.kinds import open_tokenizer
    from glit.training.config import TrainConfig
    from glit.training.loader import BatchLoader
    from glit.training.mixture import Mixture

    tokenizer = open_tokenizer(inputs / "clip")
    config = TrainConfig(objective="clip", batch_size=BATCH, context=CONTEXT)
    loader = BatchLoader(
        Mixture([open_dataset(inputs / "dataset")]), config.make_objective(),
        lambda texts: tokenizer.encode_closed(texts, context=CONTEXT), config,
        side=_SIDE, pad_id=tokenizer.end_id,
    )  # fmt: skip
    return lambda: sum(part.num_valid for parts in loader.epoch(0) for part in parts)


def _torch_loader(
    rows: Any, inputs: Path, *, image: Any, text: Any, kind: Any = None
) -> Work:  # fmt: skip
    """Torch's loader, or one of its kind, with a process a core, with the transforms and the
    tokenizer of CLIP; bytes are normalised on the device, as glit does."""
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    fit: Any = transforms.Compose([
        transforms.Resize(_SIDE, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(_SIDE), transforms.PILToTensor(),
    ])  # fmt: skip

    def together(given: Sequence[Any]) -> tuple[Any, Any]:
        import torch

        words = tokenizer(
            [row[text] for row in given], padding="max_length", truncation=True,
            max_length=CONTEXT, return_tensors="pt",
        )  # fmt: skip
        return torch.stack([fit(row[image].convert("RGB")) for row in given]), words["input_ids"]

    loader = (kind or DataLoader)(rows, batch_size=BATCH, num_workers=2, collate_fn=together)
    return lambda: sum(len(images) for images, _ in loader)


def _webdataset(inputs: Path, out: Path) -> Work:
    import webdataset

    reader: Any = webdataset

    shards = sorted(map(str, (inputs / "tars").rglob("*.tar")))
    rows = reader.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "txt")
    return _torch_loader(rows, inputs, image=0, text=1)


def _hf_loader(inputs: Path, out: Path) -> Work:
    import datasets

    files = sorted(map(str, (inputs / "hf" / "data").glob("*.parquet")))
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    stream = stream.select_columns(["image", "caption"])
    return _torch_loader(stream, inputs, image="image", text="caption")


class _OwnFolder:
    """Images of a folder with the captions of a list beside it, as one writes it for torch."""

    def __init__(self, scenes: Path) -> None:
        from torchvision.datasets import ImageFolder

        self._images: Any = ImageFolder(str(scenes), loader=Image.open)
        lines = (scenes / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        self._texts = {line["path"]: line["caption"] for line in map(json.loads, lines)}

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, at: int) -> tuple[Any, str]:
        return self._images[at][0], self._texts[Path(self._images.samples[at][0]).name]


def _image_folder(inputs: Path, out: Path) -> Work:
    return _torch_loader(_OwnFolder(inputs / "scenes"), inputs, image=0, text=1)


def _litdata(inputs: Path, out: Path) -> Work:
    import litdata

    class Rows(litdata.StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            return Image.open(io.BytesIO(found["jpg"])), found["txt"]

    rows = Rows(str(inputs / "litdata"), shuffle=True)
    return _torch_loader(rows, inputs, image=0, text=1, kind=litdata.StreamingDataLoader)


def make(inputs: Path) -> None:
    """The samples in litdata's own chunks, by its own writer if it is installed."""
    if not importlib.util.find_spec("litdata"):
        return
    import litdata

    import glit

    rows = glit.open_dataset(inputs / "dataset").rows()
    texts = {row.sample_id: {"jpg": row.image, "txt": row.caption.text} for row in rows}
    litdata.optimize(
        texts.__getitem__, [*texts], str(inputs / "litdata"), chunk_bytes="16MB", num_workers=1
    )


COMPARISON = Comparison(
    title="600 images as batches of 224 px squares and tokens",
    make=make,
    ways=(
        Way(name="glit", prepare=_glit_loader, note="shuffled; resumes at any batch"),
        Way(
            name="torch's ImageFolder",
            prepare=_image_folder,
            package="torchvision",
            note="in order",
        ),
        Way(name="litdata", prepare=_litdata, package="litdata", note="shuffled"),
        Way(name="webdataset", prepare=_webdataset, package="webdataset", note="in order"),
        Way(name="datasets, streamed", prepare=_hf_loader, package="datasets", note="in order"),
    ),
)
