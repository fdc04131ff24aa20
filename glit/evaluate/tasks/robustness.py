"""``robustness``: retrieval with a false sentence in every caption (FAST-GOAL Table XVII)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from glit.errors import InputError
from glit.evaluate.collection import Collection, all_captions
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.metrics import WAYS, Metrics
from glit.evaluate.scorers.protocol import Text
from glit.evaluate.tasks.retrieval import recalls


def robustness(
    embedder: Embedder,
    collection: Collection,
    config: EvaluateConfig,
    *,
    false_sentences: dict[int, str] | None = None,
) -> Metrics:
    """Recall@K with a false sentence in the middle of every caption, and what it costs.

    Without ``false_sentences`` (by image number) each is a sentence of another image's caption,
    drawn by the seed. ``drop`` is the mean loss of R@1 over both directions, whatever
    ``recall_at`` asks for.
    """
    scorer = config.make_scorer()
    texts, owner = all_captions(collection)
    wrong_texts = with_false_sentences(collection, seed=config.seed, given=false_sentences)
    images = scorer.images(embedder, collection)
    clean, wrong = (
        recalls(
            scorer, images, scorer.texts(embedder, some), some, owner, config,
            ks=(1, *config.recall_at),
        )
        for some in (texts, wrong_texts)
    )  # fmt: skip
    drop = [clean[f"{way}_recall@1"] - wrong[f"{way}_recall@1"] for way in WAYS]
    asked = [f"{way}_recall@{k}" for way in WAYS for k in config.recall_at]
    return {
        **{name: clean[name] for name in asked},
        **{f"wrong_{name}": wrong[name] for name in asked},
        "drop": float(np.mean(drop)),
    }


def with_false_sentences(
    collection: Collection, *, seed: int, given: dict[int, str] | None = None
) -> list[Text]:
    """Every caption with a false sentence before the one in its middle.

    Raises InputError when there is only one image to draw sentences from.
    """
    generator = np.random.default_rng(seed)
    number = len(collection.captions)
    if given is None and number < 2:
        raise InputError(f"{collection.name}: robustness needs two images or more to draw from")
    result = []
    for index in range(number):
        for caption, spans in zip(
            collection.captions[index], collection.sentences(index), strict=True
        ):
            if given is not None:
                false = given[index]
            else:
                false = _sentence_of_another(collection, index, generator)
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


def read_false_sentences(path: Path, number: int) -> dict[int, str]:
    """False sentences from a JSONL file: ``{"image": 3, "sentence": "..."}``, one for each image.

    Raises InputError for a file of another form, or one that leaves images out.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        given = {int(line["image"]): line["sentence"] for line in lines}
        if not all(isinstance(sentence, str) for sentence in given.values()):
            raise ValueError("a sentence is no text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f'{path}: wanted JSON lines {{"image": number, "sentence": text}} ({error})'
        ) from error
    missing = [i for i in range(number) if i not in given]
    if missing:
        raise InputError(
            f"{path}: no false sentence for {len(missing)} of {number} images (first: "
            f"{missing[0]}); add them, or leave the file out"
        )
    return given


def _sentence_of_another(collection: Collection, index: int, generator: np.random.Generator) -> str:
    """A sentence of a random other image that this image's captions do not contain."""
    own = " ".join(collection.captions[index])
    number = len(collection.captions)
    candidates = []
    for _ in range(16):
        other = int(generator.integers(number - 1))
        other += other >= index
        spans = collection.sentences(other)[0]
        if spans:
            start, end = spans[int(generator.integers(len(spans)))]
            candidates.append(collection.captions[other][0][start:end])
            if candidates[-1] not in own:
                break
    if not candidates:
        raise InputError(f"{collection.name}: the captions have no sentences to draw from")
    return candidates[-1]
