"""Batches of 224 px squares and tokens from the finished dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def _torch_loader(rows: Any, inputs: Path, *, image: Any, text: Any) -> Work:
    """Torch's loader with a process a core, with the transforms and the tokenizer of CLIP;
    bytes are normalised on the device, as glit does."""
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

    loader = DataLoader(rows, batch_size=BATCH, num_workers=2, collate_fn=together)
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


COMPARISON = Comparison(
    title="600 images as batches of 224 px squares and tokens",
    ways=(
        Way(name="glit", prepare=_glit_loader, note="shuffled; resumes at any batch"),
        Way(name="webdataset", prepare=_webdataset, package="webdataset", note="in order"),
        Way(name="datasets, streamed", prepare=_hf_loader, package="datasets", note="in order"),
    ),
)
