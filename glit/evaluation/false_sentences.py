"""False sentences for ``robustness``: drawn, read from a file or a dataset, or made from scenes'
truth.

Shapes: none; a false sentence is a text that belongs to an image.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.evaluation.collection import Collection
from glit.evaluation.scorers.protocol import Text
from glit.scenes.false_sentences import false_sentences_of

_DRAWS = 16
OfType = Mapping[int, str]
"""By number of the image, a false sentence; an image may have none of a type."""


def drawn(collection: Collection, *, seed: int) -> dict[int, str]:
    """Return for every image a sentence of another image's caption, drawn by the seed.

    Raises InputError when there is only one image to draw sentences from, or an image whose
    captions hold every sentence that was drawn.
    """
    generator = np.random.default_rng(seed)
    number = len(collection.captions)
    if number < 2:
        raise InputError(f"{collection.name}: robustness needs two images or more to draw from")
    return {i: _sentence_of_another(collection, i, generator) for i in range(number)}


def with_false_sentences(collection: Collection, given: OfType) -> list[Text]:
    """Every caption; those of images that are given one with it before the sentence in their
    middle."""
    result = []
    for index, captions in enumerate(collection.captions):
        for caption, spans in zip(captions, collection.sentences(index), strict=True):
            false = given.get(index)
            if false is None:
                result.append(Text(text=caption, sentences=tuple(spans)))
            else:
                result.append(_with(caption, spans, false))
    return result


def _with(caption: str, spans: list[tuple[int, int]], false: str) -> Text:
    middle = len(spans) // 2
    at = spans[middle][0] if spans else 0
    shift = len(false) + 1
    moved = [(start + shift, end + shift) for start, end in spans[middle:]]
    return Text(
        text=f"{caption[:at]}{false} {caption[at:]}",
        sentences=(*spans[:middle], (at, at + len(false)), *moved),
    )


def read_false_sentences(
    path: Path, collection: Collection, *, seed: int, limited: bool = False
) -> dict[str, dict[int, str]]:
    """False sentences of a file, by type (``""`` where the file tells no types).

    A ``ground_truth.parquet`` of scenes gives one of every type for every picture that can have
    one (:mod:`glit.scenes.false_sentences`). A glit dataset with the column ``negatives`` gives of
    every kind one of an image's, drawn by the seed. Anything else is JSON lines
    ``{"image": 3, "sentence": "...", "type": "attribute"}``: ``image`` is the number of the image,
    or its name as a text; ``type`` on all lines or on none. Without types every image wants a
    sentence; with them, an image may have one of each.

    Args:
        path: the file, or the folder of the dataset. Its images are found by their paths, or by
            their file names alone.
        collection: what is measured.
        seed: which false sentences of scenes and datasets.
        limited: the collection is a part of what the file is about, so it may tell of more images.

    Raises:
        InputError: the file has another form, leaves images out, or is about other images.
    """
    number_of = _numbers(collection.names)
    found: dict[str, dict[int, str]] = {}
    for image, kind, sentence in _lines(path, seed):
        if isinstance(image, str):
            number = number_of.get(image)
            if number is None:
                number = number_of.get(PurePosixPath(image).name)
        else:
            number = image
        if number is None or not 0 <= number < len(collection.captions):
            if limited:
                continue
            raise InputError(
                f"{path}: tells of image {image!r}, which {collection.name} does not have "
                f"({len(collection.captions)} images); give the file of these images"
            )
        if number in found.setdefault(kind, {}):
            raise InputError(
                f"{path}: two false sentences {f'of type {kind!r} ' if kind else ''}for image "
                f"{image!r}; keep one"
            )
        found[kind][number] = sentence
    _check(path, found, len(collection.captions))
    return found


def _numbers(names: Sequence[str]) -> dict[str, int]:
    """The numbers of images by name, and by the file name alone where it is that of one image."""
    alone = Counter(PurePosixPath(name).name for name in names)
    found = {
        PurePosixPath(name).name: number
        for number, name in enumerate(names)
        if alone[PurePosixPath(name).name] == 1
    }
    return found | {name: number for number, name in enumerate(names)}


def _check(path: Path, found: Mapping[str, OfType], number: int) -> None:
    if "" in found and len(found) > 1:
        raise InputError(f"{path}: some lines have a type and some have none; give all of them one")
    missing = [i for i in range(number) if i not in found.get("", {})]
    if missing and set(found) <= {""}:
        raise InputError(
            f"{path}: no false sentence for {len(missing)} of {number} images (first: "
            f"{missing[0]}); add them, or leave the file out"
        )
    for kind, sentences in found.items():
        if len(sentences) < 2:
            raise InputError(
                f"{path}: {len(sentences)} false sentence of type {kind!r}: wanted two or more, or "
                "its spread is not known"
            )


def _lines(path: Path, seed: int) -> Iterator[tuple[str | int, str, str]]:
    """Image, type and sentence."""
    if path.is_dir():
        yield from _of_dataset(path, seed)
        return
    if path.suffix == ".parquet":
        for kind, sentences in false_sentences_of(path, seed=seed).items():
            for name, sentence in sentences.items():
                yield name, kind, sentence
        return
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line:
                values: dict[str, Any] = json.loads(line)
                image, kind = values["image"], values.get("type", "")
                if not isinstance(values["sentence"], str) or not isinstance(kind, str):
                    raise ValueError("a sentence or a type is no text")
                if type(image) not in (int, str):  # true is an int, too
                    raise ValueError(f"image {json.dumps(image)} is no whole number and no name")
                yield image, kind, values["sentence"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f'{path}: wanted JSON lines {{"image": number or name, "sentence": text}}, each with a '
            f'"type" or none, the ground_truth.parquet of scenes, or a glit dataset ({error})'
        ) from error


def _of_dataset(path: Path, seed: int) -> Iterator[tuple[str, str, str]]:
    """Image, type and sentence, of the types that two images or more have."""
    dataset = Dataset(str(path))
    if "negatives" not in dataset.schema.names:
        raise InputError(
            f"{path}: the dataset has no false sentences; build it with --set "
            "negatives.enabled=true"
        )
    written: dict[str, dict[str, list[str]]] = {}
    for row in dataset.table(["source_path", "negatives"]).to_pylist():
        for each in row["negatives"] or ():
            of_kind = written.setdefault(each["kind"], {})
            of_kind.setdefault(row["source_path"], []).append(each["text"])
    for kind, by_image in written.items():
        if len(by_image) > 1:
            for image, sentences in by_image.items():
                yield image, kind, random.Random(f"{seed} {kind} {image}").choice(sentences)


def _sentence_of_another(collection: Collection, index: int, generator: np.random.Generator) -> str:
    """A sentence of a random other image that this image's captions do not contain."""
    own = " ".join(collection.captions[index])
    number = len(collection.captions)
    for _ in range(_DRAWS):
        other = int(generator.integers(number - 1))
        other += other >= index
        spans = collection.sentences(other)[0]
        if spans:
            start, end = spans[int(generator.integers(len(spans)))]
            if (sentence := collection.captions[other][0][start:end]) not in own:
                return sentence
    raise InputError(
        f"{collection.name}: no sentence of {_DRAWS} that were drawn for image "
        f"{collection.names[index]!r} is false of it, since its own captions hold them all; "
        "robustness needs images with different captions"
    )
