"""What a model is measured on: images with captions, from a glit dataset or annotation files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from glit.errors import InputError
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.readers import AnnotatedImage, read_annotations
from glit.spans import Span
from glit.train.source import LocalPair, RowGroupCache, Shards

Split = Callable[[str], list[Span]]
"""Character spans of a text's sentences."""


class Collection(Protocol):
    """Images by number, each with one or more captions."""

    name: str
    """For tables and files."""

    captions: list[tuple[str, ...]]
    """Captions of every image."""

    def image(self, index: int) -> bytes:
        """The encoded image file. Called from several threads."""
        ...

    def sentences(self, index: int) -> list[list[Span]]:
        """Character spans of the sentences of each of an image's captions."""
        ...

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """The image's local pairs, best first."""
        ...

    def size(self, index: int) -> tuple[int, int]:
        """Width and height the pairs' boxes are in, pixels."""
        ...


class DatasetCollection:
    """A glit dataset; captions and pairs in memory, images read as they are needed."""

    def __init__(self, dataset: str, config: EvaluateConfig) -> None:
        shards = Shards(dataset, image_root=config.image_root)
        self.name = Path(dataset.rstrip("/")).name
        self.shards = shards
        self.captions: list[tuple[str, ...]] = []
        self._sentences: list[list[Span]] = []
        self._pairs: list[tuple[LocalPair, ...]] = []
        self._sizes: list[tuple[int, int]] = []
        self._places: list[tuple[int, int]] = []
        self._groups = RowGroupCache(shards, capacity=4)
        for group in range(len(shards.row_groups)):
            rows = shards.read(group, images=False)
            for index in range(len(rows)):
                if config.limit and len(self.captions) == config.limit:
                    return
                row = rows[index]
                self.captions.append((row.caption,))
                self._sentences.append(list(row.sentences))
                self._pairs.append(row.pairs)
                self._sizes.append((row.width, row.height))
                self._places.append((group, index))

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        group, row = self._places[index]
        return self._groups.get(group)[row].image

    def sentences(self, index: int) -> list[list[Span]]:
        """The dataset's own sentence spans."""
        return [self._sentences[index]]

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """The dataset's usable pairs."""
        return self._pairs[index]

    def size(self, index: int) -> tuple[int, int]:
        """Width and height, pixels."""
        return self._sizes[index]


class AnnotatedCollection:
    """Image files with captions from an annotation file; they have no local pairs."""

    def __init__(self, name: str, images: Sequence[AnnotatedImage], split: Split) -> None:
        self.name = name
        self._paths = [image.path for image in images]
        self.captions = [image.captions for image in images]
        self._split = split

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        return self._paths[index].read_bytes()

    def sentences(self, index: int) -> list[list[Span]]:
        """Spans by the configured splitter."""
        return [self._split(caption) for caption in self.captions[index]]

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """None: annotation files say nothing of regions."""
        return ()

    def size(self, index: int) -> tuple[int, int]:
        """Never asked for: only pairs need it, and there are none."""
        raise AssertionError(f"size of image {index}: annotation files carry no pairs")


class JointCollection(AnnotatedCollection):
    """Whole images, and the segments that a joint set has of them as image files.

    ``joint-map`` measures over both; the other measurements see the whole images.
    """

    def __init__(self, name: str, images: Sequence[AnnotatedImage], split: Split) -> None:
        super().__init__(name, images, split)
        segments = [(i, segment) for i, image in enumerate(images) for segment in image.segments]
        files = [AnnotatedImage(path=s.path, captions=(s.sentence,)) for _, s in segments]
        self.joint = AnnotatedCollection(name, [*images, *files], split)
        """The whole images, then the segments."""
        self.sample = [*range(len(images)), *(i for i, _ in segments)]
        """Which whole image each image of ``joint`` belongs to."""


def open_collection(
    source: str,
    config: EvaluateConfig,
    *,
    kind: str = "glit",
    images: Path | None = None,
    split: str | None = None,
) -> Collection:
    """Open what ``source`` names: a glit dataset, or annotations of a known format."""
    if kind == "glit":
        if images is not None or split is not None:
            raise InputError(
                f"{source}: --images and --split belong to annotations of another --format; for a "
                "glit dataset that stores images by path, set evaluate.image_root"
            )
        return DatasetCollection(source, config)
    from glit.stages.split import make_splitter

    found = read_annotations(kind, Path(source), images=images, split=split, limit=config.limit)
    name = kind if split is None else f"{kind} {split}"
    collection = JointCollection if any(i.segments for i in found) else AnnotatedCollection
    return collection(name, found, make_splitter(config.splitter, "en"))


def need_pairs(collection: Collection, task: str) -> None:
    """Refuse a collection without local pairs for a task that measures them."""
    if not any(collection.pairs(i) for i in range(len(collection.captions))):
        raise InputError(
            f"{collection.name}: no image has a local pair, which {task} measures; give a glit "
            "dataset built by glit build"
        )
