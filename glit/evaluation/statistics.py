"""``glit stats``: how long captions are, as papers' tables tell it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from glit.backends.tokenizer import TextTokenizer
from glit.data.schema import has_captions
from glit.dataset.card import pairs_from_files
from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.evaluation.readers import read_annotations
from glit.pipeline.user_captions import TEXT_KEYS, captions_in
from glit.runtime.prefetch import batched
from glit.text.sentences import make_splitter

WINDOWS = (77, 248)
"""Text windows of CLIP and of Long-CLIP, in tokens; the start and end token count."""
_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Of a number per caption."""

    mean: float
    median: float
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Of the captions of a collection."""

    images: int
    captions: int
    words: Spread
    """Separated by white space."""
    sentences: Spread
    sentence_histogram: dict[int, int]
    """Captions by their number of sentences."""
    tokens: Spread | None
    """Without start and end token; None without a tokenizer."""
    beyond: dict[int, float]
    """Share of captions that do not fit into a window of so many tokens."""
    per_image: dict[str, float]
    """Of a glit dataset: regions, pairs, and the mean similarity of pairs that a matcher scored."""

    kinds: dict[str, int] = field(default_factory=dict)
    """Of a glit dataset with several captions an image: how many there are of each kind; all other
    figures are of ``caption``."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def dataset_statistics(path: str, tokenizer: TextTokenizer | None) -> Statistics:
    """Of a finished dataset; sentences are its own.

    Raises:
        GlitError: there is none, or it is damaged.
    """
    dataset = Dataset(path)
    with connect(dataset) as connection:
        answer = connection.sql("SELECT caption, len(sentences) AS sentences FROM samples")
        rows = (
            (row["caption"], row["sentences"])
            for batch in answer.to_arrow_reader(_BATCH)
            for row in batch.to_pylist()
        )
        found = _statistics(rows, tokenizer, images=len(dataset))
        ((regions,),) = connection.sql("SELECT sum(len(regions)) FROM samples").fetchall()
        ((pairs, similarity),) = connection.sql(
            "SELECT count(*), avg(similarity) FROM pairs WHERE NOT global_wins"
        ).fetchall()
    of_image = {"regions": regions / len(dataset), "pairs": pairs / len(dataset)}
    if similarity is not None and not pairs_from_files(dataset.manifest["recipe"]):
        of_image["similarity"] = similarity
    return replace(found, per_image=of_image, kinds=_kinds(dataset))


def _kinds(dataset: Dataset) -> dict[str, int]:
    """Captions by kind, of a dataset with several an image."""
    found: Counter[str] = Counter()
    for number in range(len(dataset.places)) if has_captions(dataset.schema) else ():
        table = dataset.table(["captions"], row_group=number)
        found.update(e["kind"] for several in table["captions"].to_pylist() for e in several)
    return dict(sorted(found.items()))


def annotation_statistics(
    file: Path, kind: str, *, split: str | None, tokenizer: TextTokenizer | None
) -> Statistics:
    """Of published annotations, whose images need not be here, or of a file of captions.

    Args:
        file: as published; of kind ``captions``, JSON lines, CSV or Parquet.
        kind: one of the readers' formats, or ``captions``.
        split: which parts; see :func:`read_annotations`.
        tokenizer: to count tokens with.

    Raises:
        InputError: the file is not of that format, or has no caption.
    """
    if kind == "captions":
        texts = [text for text in captions_in(file) if text]
        images = len(texts)
    else:
        found = read_annotations(kind, file, images=None, split=split, need_images=False)
        texts, images = [text for image in found for text in image.captions], len(found)
    if not texts:
        raise InputError(f"{file}: no caption under {' or '.join(TEXT_KEYS)}")
    split_text = make_splitter("sentencex", "en")
    return _statistics(((text, len(split_text(text))) for text in texts), tokenizer, images=images)


def _statistics(
    rows: Iterable[tuple[str, int]], tokenizer: TextTokenizer | None, *, images: int
) -> Statistics:
    words: list[int] = []
    sentences: list[int] = []
    tokens: list[int] = []
    for batch in batched(rows, _BATCH):
        words += (len(text.split()) for text, _ in batch)
        sentences += (number for _, number in batch)
        tokens += _lengths([text for text, _ in batch], tokenizer)
    return Statistics(
        images=images,
        captions=len(words),
        words=_spread(words),
        sentences=_spread(sentences),
        sentence_histogram=dict(sorted(Counter(sentences).items())),
        tokens=_spread(tokens) if tokens else None,
        beyond={w: sum(n + 2 > w for n in tokens) / len(tokens) for w in WINDOWS if tokens},
        per_image={},
    )


def _lengths(texts: Sequence[str], tokenizer: TextTokenizer | None) -> Iterator[int]:
    return iter(()) if tokenizer is None else map(len, tokenizer.encode(texts))


def _spread(values: Sequence[int]) -> Spread:
    return Spread(mean=statistics.fmean(values), median=statistics.median(values), most=max(values))


def lines(found: Statistics) -> list[tuple[str, str]]:
    """The rows of a table."""
    rows = [("images", f"{found.images:,}"), ("captions", f"{found.captions:,}")]
    for name in ("words", "sentences", "tokens"):
        spread: Spread | None = getattr(found, name)
        if spread is not None:
            told = f"mean {spread.mean:.1f}, median {spread.median:g}, most {spread.most}"
            rows.append((f"{name} per caption", told))
    for window, share in found.beyond.items():
        rows.append((f"captions beyond {window} tokens", f"{share:.1%}"))
    for name, value in found.per_image.items():
        title = "mean similarity of pairs" if name == "similarity" else f"{name} per image"
        rows.append((title, f"{value:.4f}" if name == "similarity" else f"{value:.1f}"))
    for kind, number in found.kinds.items():
        rows.append((f"captions of the kind {kind}", f"{number:,}"))
    counts = ", ".join(f"{n}: {count}" for n, count in found.sentence_histogram.items())
    rows.append(("captions by sentences", counts))
    return rows
