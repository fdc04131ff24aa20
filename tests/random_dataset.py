"""Datasets of made-up samples in glit's format, for tests of the trainer.

Pictures are blurred noise, sentences are drawn from a word list and pairs are arbitrary: the files
have the shape and the cost of real ones, and nothing can be learned from them.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from glit.data.schema import SCHEMA_VERSION, Columns, dataset_schema, hf_feature
from glit.dataset.manifest import (
    Counts,
    FileEntry,
    Manifest,
    RecordedRecipe,
    TokenizerEntry,
    describe_file,
)
from glit.pipeline.planning.recipe import load_recipe
from glit.plain import as_plain, from_plain
from glit.text.spans import token_spans
from glit.version import __version__

WORDS = [
    "red", "green", "blue", "yellow", "small", "large", "round", "square", "wooden", "metal",
    "bright", "dark", "old", "new", "tall", "wide", "house", "tree", "car", "table", "chair",
    "river", "street", "window", "door", "lamp", "bird", "dog", "cat", "boat", "bridge",
    "tower", "stands", "lies", "hangs", "rests", "leans", "shines", "moves", "waits", "near",
    "beside", "above", "below", "behind", "under",
]  # fmt: skip
WRITER: dict[str, Any] = {
    "compression": "none", "use_dictionary": False, "write_page_index": True, "write_batch_size": 8,
}  # fmt: skip
"""Images are stored as glit stores them: as they are."""

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetShape:
    """How many samples of what size."""

    num_samples: int
    width: int = 64
    """Pixels."""
    height: int = 48
    """Pixels."""
    num_sentences: int = 4
    """Sentences a caption."""
    words: int = 8
    """Words a sentence."""
    rows_per_group: int = 8
    rows_per_file: int = 32
    distinct_images: int = 0
    """Different pictures, used in turn; 0 makes one per sample."""


def write_random_dataset(
    folder: Path,
    shape: DatasetShape,
    *,
    seed: int,
    encode: Encode,
    tokenizer: dict[str, Any],
    change: Callable[[int, dict[str, Any]], None] | None = None,
    further: Columns = (),
) -> Path:
    """Write data files and a manifest.

    Args:
        folder: the dataset's folder.
        shape: its size.
        seed: decides everything in it.
        encode: token ids of texts, for the spans.
        tokenizer: identity for the files' metadata: name, sha256, context.
        change: called with the row number and the row, which it may change in place.
        further: columns beside the standard ones, which ``change`` fills.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    schema = dataset_schema(tokenizer=tokenizer, further=further)
    num_files = -(-shape.num_samples // shape.rows_per_file)
    files: dict[str, FileEntry] = {}
    rows = enumerate(_rows(shape, seed, encode, context=int(tokenizer["context"])))
    for number in range(num_files):
        path = f"data/train-{number:05d}-of-{num_files:05d}.parquet"
        own, count = itertools.islice(rows, shape.rows_per_file), 0
        with pq.ParquetWriter(folder / path, schema, **WRITER) as writer:
            while group := list(itertools.islice(own, shape.rows_per_group)):
                if change is not None:
                    deque(itertools.starmap(change, group), maxlen=0)
                writer.write_table(pa.Table.from_pylist([row for _, row in group], schema=schema))
                count += len(group)
        files[path] = describe_file(folder / path, count)
    manifest = Manifest(
        columns={name: hf_feature(kind) for name, kind in further},
        schema_version=SCHEMA_VERSION,
        glit_version=__version__,
        recipe=from_plain(RecordedRecipe, as_plain(load_recipe("mini").as_dict())),
        fingerprints={},
        models={},
        tokenizer=from_plain(TokenizerEntry, tokenizer),
        counts=Counts(
            ingested=shape.num_samples, shipped=shape.num_samples, dropped=0, duplicates=0, drops={}
        ),
        files=files,
    )
    (folder / "manifest.json").write_bytes(manifest.as_bytes())
    return folder


def random_sentences(generator: np.random.Generator, num: int, words: int) -> list[str]:
    """Sentences of ``words`` words each, first letter large, full stop at the end."""
    return [" ".join(generator.choice(WORDS, size=words)).capitalize() + "." for _ in range(num)]


def random_jpeg(generator: np.random.Generator, width: int, height: int) -> bytes:
    """A JPEG of smooth coloured noise (about as many bytes a pixel as a photograph)."""
    size = (max(2, height // 12), max(2, width // 12), 3)
    coarse = Image.fromarray(generator.integers(0, 256, size=size, dtype=np.uint8))
    picture = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    noise = generator.normal(0, 6, size=(height, width, 1))
    buffer = io.BytesIO()
    pixels = np.clip(picture + noise, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _rows(
    shape: DatasetShape, seed: int, encode: Encode, *, context: int
) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    pictures: list[bytes] = []
    source = dict.fromkeys(("model", "revision", "prompt_sha256"), "")
    for index in range(shape.num_samples):
        if not shape.distinct_images or index < shape.distinct_images:
            picture = random_jpeg(generator, shape.width, shape.height)
            if shape.distinct_images:
                pictures.append(picture)
        else:
            picture = pictures[index % shape.distinct_images]
        texts = random_sentences(generator, shape.num_sentences, shape.words)
        regions = [_region(generator, shape) for _ in range(3)]
        yield {
            "sample_id": hashlib.sha256(picture).hexdigest(),
            "image": {"bytes": picture, "path": None},
            "source_path": f"{index:06d}.jpg",
            "width": shape.width,
            "height": shape.height,
            "caption": " ".join(texts),
            "caption_source": {"kind": "provided", **source, "trimmed": False},
            "sentences": _sentences(texts, encode, context),
            "regions": regions,
            "similarity": [0.0] * (len(texts) * len(regions)),
            "image_similarity": [0.0] * len(texts),
            "pairs": _pairs(generator, len(texts), len(regions)),
        }


def _sentences(texts: list[str], encode: Encode, context: int) -> list[dict[str, Any]]:
    ends = np.cumsum([len(text) + 1 for text in texts]).tolist()
    characters = [(end - len(text) - 1, end - 1) for text, end in zip(texts, ends, strict=True)]
    spans = token_spans(" ".join(texts), characters, encode)
    return [
        {
            "text": text, "char_start": char_start, "char_end": char_end,
            "token_start": first, "token_end": last, "in_window": last <= context - 1,
            "truncated": False,
        }
        for text, (char_start, char_end), (first, last) in zip(
            texts, characters, spans, strict=True
        )
    ]  # fmt: skip


def _region(generator: np.random.Generator, shape: DatasetShape) -> dict[str, Any]:
    x0, x1 = np.sort(generator.choice(shape.width + 1, size=2, replace=False)).tolist()
    y0, y1 = np.sort(generator.choice(shape.height + 1, size=2, replace=False)).tolist()
    box = {"x0": float(x0), "y0": float(y0), "x1": float(x1), "y1": float(y1)}
    return {**box, "score": 1.0, "label": "", "source": "yolos"}


def _pairs(generator: np.random.Generator, sentences: int, regions: int) -> list[dict[str, Any]]:
    similarity = np.sort(generator.uniform(0.1, 0.4, size=sentences))[::-1].tolist()
    return [
        {
            "sentence": int(sentence), "region": int(generator.integers(regions)),
            "similarity": value, "global_wins": False,
        }
        for value, sentence in zip(similarity, generator.permutation(sentences), strict=True)
    ]  # fmt: skip
