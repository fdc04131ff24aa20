"""The images and captions of a measurement, from a glit dataset or annotation files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from glit.data.captions import LONG
from glit.data.schema import CAPTIONS, has_captions
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import COLUMNS, LocalPair, local_pairs
from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import InputError
from glit.evaluation.encode_config import EncodeConfig
from glit.images import Pixels, decode
from glit.inputs.published import AnnotatedImage, read_annotations
from glit.text.sentences import make_splitter
from glit.text.spans import Span

Split = Callable[[str], list[Span]]
"""Character spans of a text's sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A caption with its sentences."""

    text: str
    sentences: tuple[Span, ...]
    """Character spans."""

    @property
    def pieces(self) -> list[str]:
        """The sentences' texts; the whole text where there is none."""
        return [self.text[start:end] for start, end in self.sentences] or [self.text]


class Collection(Protocol):
    """Images by number, each with one or more captions."""

    name: str
    """For tables and files."""

    names: list[str]
    """Names of the images, for messages."""

    captions: list[tuple[str, ...]]
    """Captions of every image."""

    def image(self, index: int) -> bytes:
        """The encoded image file. Called from several threads."""
        ...

    def pixels(self, index: int) -> Pixels:
        """The decoded image. Called from several threads."""
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


EVERY = "all"
"""The value of ``evaluate.caption`` for every caption of an image."""
_COLUMNS = ("sample_id", "source_path", "caption", "width", "height", *COLUMNS)


class _Texts:
    """The captions of a dataset's images that are measured; see ``evaluate.caption``.

    Raises:
        InputError: images of it have one caption.
    """

    def __init__(self, dataset: Dataset, config: EncodeConfig) -> None:
        self._path, self._kind = dataset.path, config.caption
        self.columns: tuple[str, ...] = ()
        if self._kind != LONG:
            if not has_captions(dataset.schema):
                raise InputError(
                    f"{dataset.path}: has one caption an image, and evaluate.caption = "
                    f"{self._kind!r} chooses among several; build it with captions of several "
                    "kinds (docs/captions.md)"
                )
            self.columns = (CAPTIONS[0],)
        self._split = make_splitter(config.splitter, "en")

    def of(self, group: RowGroup, row: int) -> dict[str, list[Span]]:
        """Texts, and the character spans of the sentences of each.

        Raises:
            InputError: an image has no caption of the kind: without it the gallery were smaller.
        """
        caption = group.value("caption", row)
        spans = [(each.char_start, each.char_end) for each in group.sentences_of(row)]
        if self._kind == LONG:
            return {caption: spans}
        several = group.value(CAPTIONS[0], row) or ()
        texts = [each["text"] for each in several if self._kind in (EVERY, each["kind"])]
        if not texts:
            kind = "" if self._kind == EVERY else f" of the kind {self._kind!r}"
            raise InputError(
                f"{self._path}: {group.value('source_path', row)} has no captions{kind}; leave "
                "such images out with glit select --where, or take another evaluate.caption"
            )
        return {text: spans if text == caption else self._split(text) for text in texts}


class DatasetCollection:
    """A glit dataset; captions and pairs in memory, images read as they are needed."""

    def __init__(self, path: str, config: EncodeConfig) -> None:
        dataset = Dataset(path, image_root=config.image_root)
        self.name = Path(path.rstrip("/")).name
        texts = _Texts(dataset, config)
        if config.caption != LONG:
            self.name += f" ({config.caption} captions)"
        self.captions: list[tuple[str, ...]] = []
        self.names: list[str] = []
        self._sentences: list[list[list[Span]]] = []
        self._pairs: list[tuple[LocalPair, ...]] = []
        self._sizes: list[tuple[int, int]] = []
        self._places: list[tuple[int, int]] = []
        self._groups = RowGroupCache(
            dataset, capacity=4, columns=("sample_id", "image", "source_path", "width", "height")
        )
        for number in range(len(dataset.places)):
            group = dataset.row_group(number, columns=(*_COLUMNS, *texts.columns))
            for row in range(len(group)):
                if config.limit and len(self.captions) == config.limit:
                    return
                found = texts.of(group, row)
                self.captions.append(tuple(found))
                self.names.append(group.value("source_path", row))
                self._sentences.append([*found.values()])
                self._pairs.append(local_pairs(group, row))
                self._sizes.append((group.value("width", row), group.value("height", row)))
                self._places.append((number, row))

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        group, row = self._places[index]
        return self._groups.get(group).image(row)

    def pixels(self, index: int) -> Pixels:
        """The decoded image, if it has the size that its row says."""
        group, row = self._places[index]
        return self._groups.get(group).pixels(row)

    def sentences(self, index: int) -> list[list[Span]]:
        """The dataset's own sentence spans; those of the splitter for captions of other kinds."""
        return self._sentences[index]

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
        self.names = [image.path.name for image in images]
        self.captions = [image.captions for image in images]
        self._split = split

    def image(self, index: int) -> bytes:
        """The encoded image file."""
        return self._paths[index].read_bytes()

    def pixels(self, index: int) -> Pixels:
        """The decoded image."""
        return decode(self.image(index))

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


class GrowingCollection(AnnotatedCollection):
    """Images whose captions are the beginnings of one caption, shortest first."""


def open_collection(
    dataset: str,
    config: EncodeConfig,
    *,
    kind: str = "glit",
    images: Path | None = None,
    split: str | None = None,
) -> Collection:
    """Open a glit dataset, or annotations of a known format."""
    if kind == "glit":
        if images is not None or split is not None:
            raise InputError(
                f"{dataset}: --images and --split belong to annotations of another --format; for a "
                "glit dataset that stores images by path, set evaluate.image_root"
            )
        return DatasetCollection(dataset, config)
    found = read_annotations(kind, Path(dataset), images=images, split=split, limit=config.limit)
    name = kind if split is None else f"{kind} {split}"
    if kind == "himo-docci":
        collection = GrowingCollection
    else:
        collection = JointCollection if any(i.segments for i in found) else AnnotatedCollection
    return collection(name, found, make_splitter(config.splitter, "en"))


def all_captions(collection: Collection) -> tuple[list[Text], list[int]]:
    """Every caption with its sentences, and the number of the image it belongs to."""
    texts, owner = [], []
    for index, captions in enumerate(collection.captions):
        for caption, spans in zip(captions, collection.sentences(index), strict=True):
            texts.append(Text(text=caption, sentences=tuple(spans)))
            owner.append(index)
    return texts, owner


def need_pairs(collection: Collection, task: str) -> None:
    """Refuse a collection without local pairs for a task that measures them."""
    if not any(collection.pairs(i) for i in range(len(collection.captions))):
        raise InputError(
            f"{collection.name}: no image has a local pair, which {task} measures; give a glit "
            "dataset built by glit build"
        )
