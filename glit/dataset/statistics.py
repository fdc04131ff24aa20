"""Statistics as papers print them: words, sentences and tokens a caption; regions and pairs.

The figures of a dataset come from a pass over few of its columns (no picture, no text of a
sentence), some seconds a million rows; memory does not grow with the number of rows.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from glit.data.bounded_parquet import BoundedParquet
from glit.data.schema import BY_HAND, CAPTIONS, has_captions
from glit.dataset.columns import NestedColumn
from glit.dataset.manifest import Manifest, Recorded, some_from_files
from glit.dataset.reader import Dataset
from glit.dataset.rights_figures import FIELDS as RIGHTS_FIELDS
from glit.dataset.rights_figures import count_rights, has_rights, merged
from glit.dataset.row_checks import file_faults, nulls
from glit.errors import DatasetError, InputError, first_line
from glit.models.tokenizer import CLIP_TOKENIZER, SpanTokenizer, clip_tokenizer
from glit.models.weights import is_mini
from glit.runtime.prefetch import map_ahead
from glit.storage.store import Store

WINDOWS = (77, 248)
"""Text windows of CLIP and of Long-CLIP, in tokens; the start and end token count."""
PAPERS = (
    ("GLIT100k", "100,647", "159", "", "", "FAST-GOAL, § V-A"),
    ("DOCCI", "15,000", "136", "", "", "FineLIP, appendix"),
    ("DOCCI, test", "5,000", "", "7.12", "141.52", "F-CAST, Table 4"),
    ("DCI", "7,805", "", "10.81", "172.73", "F-CAST, Table 4"),
    ("ShareGPT4V", "1.2 million", "143.6", "", "", "FineLIP, § 4.1"),
    ("ShareGPT4V-1k", "1,000", "", "8.15", "173.24", "F-CAST, Table 4"),
)
"""Figures that papers print, in :data:`PAPER_COLUMNS`; empty where they do not say."""
PAPER_COLUMNS = ("mean per caption", "images", "words", "sentences", "tokens", "from")
_LEAVES = {
    "caption": ("caption",),
    "sentences": ("token_end",),
    "regions": ("x0",),
    "pairs": ("sentence", "similarity", "global_wins"),
    CAPTIONS[0]: ("kind", "source"),
    "by_hand": ("sentence", "scored"),
    "rights": RIGHTS_FIELDS,
}
"""By column, the fields that are read."""
_BATCH = 4096
_MOST_SHOWN = 30
"""Different numbers of sentences that a row of the table names."""
_COMPUTE: Any = pyarrow.compute  # its functions are made at run time


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean, median and maximum of a number that every caption has."""

    mean: float
    median: float
    most: int

    @classmethod
    def of(cls, counts: Counter[int]) -> Spread:
        """Return the spread of numbers, each with how often it occurs.

        >>> Spread.of(Counter({1: 2, 4: 2}))
        Spread(mean=2.5, median=2.5, most=4)
        """
        total = counts.total()
        values = sorted(counts)
        ends = np.cumsum([counts[value] for value in values])
        middle = np.searchsorted(ends, [(total - 1) // 2, total // 2], "right")
        mean = sum(value * number for value, number in counts.items()) / total
        return cls(mean=mean, median=sum(values[at] for at in middle) / 2, most=values[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures of the captions of a collection."""

    images: int
    captions: int
    words: Spread
    """Separated by white space."""
    sentences: Spread
    sentence_histogram: dict[int, int]
    """Captions by their number of sentences."""
    tokens: Spread | None
    """Without start and end token; None without a tokenizer. As a dataset stores them, up to the
    end of the last sentence."""
    beyond: dict[int, float]
    """Share of captions that do not fit into a window of so many tokens."""
    per_image: dict[str, float]
    """Figures of a glit dataset with regions: regions, pairs, and the mean similarity of pairs that
    a matcher scored."""
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    """By kind and source: the number of captions, of a glit dataset with several an image. All
    other figures count the column ``caption`` alone."""
    tokenizer: str = ""
    """The model whose tokenizer counted the tokens."""
    rights: dict[str, int] = field(default_factory=dict)
    """Statements on the rights in the pictures, by what they state; see
    :func:`glit.dataset.rights_figures.count_rights`."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class CaptionTally:
    """Counts over captions, and over the rows of a dataset, while they pass."""

    images: int = 0
    words: Counter[int] = field(default_factory=Counter)
    sentences: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and source."""
    regions: int = 0
    pairs: int = 0
    scored: int = 0
    """Pairs whose similarity is known."""
    similarity: list[float] = field(default_factory=list)
    """Sums over some of the scored pairs."""
    rights: Counter[str] = field(default_factory=Counter)

    def texts(
        self, texts: Sequence[str], sentences: Iterable[int], tokenizer: SpanTokenizer | None
    ) -> None:
        """Count captions, each with its number of sentences."""
        self.words.update(len(text.split()) for text in texts)
        self.sentences.update(sentences)
        if tokenizer is not None:
            self.tokens.update(map(len, tokenizer.encode(texts)))

    def rows(self, table: pa.Table, tokenizer: SpanTokenizer | None) -> None:
        """Count rows of a dataset: tokens by its own spans, or anew by a tokenizer.

        Raises:
            ValueError: a value is missing, or a number is not finite.
        """
        table.validate(full=True)
        for row, fault in nulls(table):
            raise ValueError(f"row {row}: {fault}")
        self.images += len(table)
        sentences, pairs = (NestedColumn(table.column(name)) for name in ("sentences", "pairs"))
        self.words.update(_num_words(table.column("caption")))
        self.sentences.update(sentences.counts.tolist())
        if tokenizer is None:
            self.tokens.update(_num_tokens(sentences))
        else:
            self.tokens.update(map(len, tokenizer.encode(table.column("caption").to_pylist())))
        self.regions += len(NestedColumn(table.column("regions")).row)
        self._pairs(pairs, _unscored(table))
        if "rights" in table.column_names:
            self.rights = merged(self.rights, count_rights(table.column("rights")))
        if CAPTIONS[0] in table.column_names:
            several = NestedColumn(table.column(CAPTIONS[0]))
            here = slice(int(several.start[0]), int(several.start[-1]))
            self.kinds.update(zip(several["kind"][here], several["source"][here], strict=True))

    def _pairs(self, pairs: NestedColumn, unscored: np.ndarray) -> None:
        """Count pairs and sum their similarities. A pair that no matcher scored is stored with a
        similarity of 0, which is left out."""
        local = ~np.asarray(pairs["global_wins"], bool)
        known = local & ~np.isin(_keys(pairs), unscored)
        similarity = float(np.asarray(pairs["similarity"], np.float64)[known].sum())
        if not math.isfinite(similarity):
            raise ValueError("a pair's similarity is not finite")
        self.pairs += int(local.sum())
        self.scored += int(known.sum())
        self.similarity.append(similarity)

    def merge(self, other: CaptionTally) -> None:
        """Add the counts of another."""
        for name in ("words", "sentences", "tokens", "kinds"):
            getattr(self, name).update(getattr(other, name))
        self.rights = merged(self.rights, other.rights)
        for name in ("images", "regions", "pairs", "scored", "similarity"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def statistics(self, manifest: Recorded | None = None, *, tokenizer: str = "") -> Statistics:
        """The figures.

        Args:
            manifest: of a dataset.
            tokenizer: the model whose tokenizer counted the tokens.
        """
        captions = self.words.total()
        per_image = {}
        if manifest is not None and manifest.recipe.has_regions:
            per_image = {"regions": self.regions / self.images, "pairs": self.pairs / self.images}
            if self.scored and not some_from_files(manifest):
                per_image["similarity"] = math.fsum(self.similarity) / self.scored
        beyond = {
            window: sum(n for tokens, n in self.tokens.items() if tokens + 2 > window) / captions
            for window in (WINDOWS if self.tokens else ())
        }
        kinds: dict[str, dict[str, int]] = {}
        for (kind, source), number in sorted(self.kinds.items()):
            kinds.setdefault(kind, {})[source] = number
        return Statistics(
            images=self.images,
            captions=captions,
            words=Spread.of(self.words),
            sentences=Spread.of(self.sentences),
            sentence_histogram=dict(sorted(self.sentences.items())),
            tokens=Spread.of(self.tokens) if self.tokens else None,
            beyond=beyond,
            per_image=per_image,
            kinds=kinds,
            tokenizer=tokenizer if self.tokens else "",
            rights=dict(sorted(self.rights.items())),
        )


def dataset_statistics(
    store: Store,
    manifest: Manifest,
    tokenizer: tuple[str, SpanTokenizer] | None = None,
    *,
    report: Callable[[int], None] = lambda _: None,
) -> Statistics:
    """Count the rows of a dataset whose data files are all written; sentences as it stores them.

    Args:
        store: of the dataset.
        manifest: of it, which need not be written yet.
        tokenizer: name and tokenizer to count tokens with; None takes :func:`counting_tokenizer`.
        report: called with so many more rows that are counted.

    Raises:
        DatasetError: a file is missing or damaged.
        InputError: the dataset has no rows.
    """
    named, counting = tokenizer or counting_tokenizer(manifest)
    found = CaptionTally()

    def count(name: str) -> CaptionTally:
        own = CaptionTally()
        try:
            for table in _tables(store, name, manifest):
                own.rows(table, counting)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DatasetError(
                f"{store.root}/{name}: its rows cannot be counted ({first_line(error)}); run "
                "'glit verify' and repair the dataset"
            ) from error
        return own

    threads = min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        for own in map_ahead(pool, count, manifest.data_files, most=2 * threads):
            found.merge(own)
            report(own.images)
    if not found.images:
        raise InputError(f"{store.root}: the dataset has no samples; build it from more images")
    return found.statistics(manifest, tokenizer=named)


def counting_tokenizer(manifest: Manifest) -> tuple[str, SpanTokenizer | None]:
    """The name of the tokenizer that counts a dataset's tokens, and the tokenizer if it is not the
    dataset's own: those of mini models count far more tokens than CLIP's, which papers count."""
    if is_mini(manifest.tokenizer.name):
        return "CLIP", clip_tokenizer()
    if manifest.tokenizer.name == CLIP_TOKENIZER:
        return "CLIP", None
    return manifest.tokenizer.name, None


def narrowed_statistics(dataset: Dataset) -> Statistics:
    """Count the rows that a dataset still has after :func:`glit.dataset.select.narrowed`.

    Raises:
        DatasetError: a file is damaged.
    """
    found, columns = CaptionTally(), _columns(dataset.schema)
    named, counting = counting_tokenizer(dataset.manifest)
    for number in range(len(dataset.places)):
        found.rows(dataset.table(columns, row_group=number), counting)
    return found.statistics(dataset.manifest, tokenizer=named)


def _tables(store: Store, name: str, manifest: Manifest) -> Iterator[pa.Table]:
    """Some thousand rows at a time of a data file, with the fields that are counted."""
    if store.is_local and not os.path.isfile(store.full(name)):
        raise OSError("missing, or no regular file")
    with BoundedParquet(store.for_arrow(name), pre_buffer=not store.is_local) as file:
        for fault in file_faults(file.metadata, name, manifest):
            raise ValueError(fault)
        if store.is_local:
            file.check()
        if not file.metadata.num_row_groups:
            return
        columns = _columns(file.schema_arrow)
        # from the first row group: a ParquetFile's schema would keep its footer in memory for good
        group = file.metadata.row_group(0)
        paths = (group.column(number).path_in_schema for number in range(group.num_columns))
        wanted = [
            path
            for path in paths
            if (parts := path.split("."))[0] in columns and parts[-1] in _LEAVES[parts[0]]
        ]
        for batch in file.iter_batches(_BATCH, columns=wanted):
            yield pa.Table.from_batches([batch])


def _columns(schema: pa.Schema) -> list[str]:
    """The columns of a dataset that are counted; those of somebody's own stages are not ours."""
    by_hand = "by_hand" in schema.names and schema.field("by_hand").type == pa.list_(BY_HAND)
    ours = {CAPTIONS[0]: has_captions(schema), "by_hand": by_hand, "rights": has_rights(schema)}
    return [name for name in _LEAVES if ours.get(name, True)]


def _num_words(texts: Any) -> list[int]:
    """Words of each text, as ``str.split`` has them, without Python's lock."""
    trimmed = _COMPUTE.utf8_trim_whitespace(texts)
    words = _COMPUTE.list_value_length(_COMPUTE.utf8_split_whitespace(trimmed))
    return _COMPUTE.if_else(_COMPUTE.equal(trimmed, ""), 0, words).to_pylist()


def _num_tokens(sentences: NestedColumn) -> list[int]:
    """Tokens of each caption up to the end of its last sentence; the start token counts as 0."""
    ends = np.concatenate([[1], sentences["token_end"]])
    first, last = sentences.start[:-1], sentences.start[1:]
    return (ends[np.where(last > first, last, 0)] - 1).tolist()


def _keys(column: NestedColumn) -> np.ndarray:
    """Return the row and the sentence of every value as one number."""
    return column.row << 32 | np.asarray(column["sentence"])


def _unscored(table: pa.Table) -> np.ndarray:
    """Keys of sentences whose pair a person decided and no matcher scored."""
    if "by_hand" not in table.column_names:
        return np.empty(0, np.int64)
    decided = NestedColumn(table.column("by_hand"))
    return _keys(decided)[~np.asarray(decided["scored"], bool)]


def lines(found: Statistics) -> list[tuple[str, str]]:
    """The statistics as names and values, for people."""
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
    for kind, sources in found.kinds.items():
        told = ", ".join(f"{number:,} {source}" for source, number in sources.items())
        rows.append((f"captions of the kind {kind}", told))
    rows.append(("captions by sentences", _shown(found.sentence_histogram)))
    return rows


def _shown(histogram: dict[int, int]) -> str:
    """Captions by their number of sentences; large numbers together.

    >>> _shown({1: 4, 2: 6})
    '1: 4, 2: 6'
    """
    single = [f"{number}: {count}" for number, count in histogram.items()]
    if len(single) <= _MOST_SHOWN:
        return ", ".join(single)
    numbers, rest = [*histogram][_MOST_SHOWN:], [*histogram.values()][_MOST_SHOWN:]
    return ", ".join([*single[:_MOST_SHOWN], f"{numbers[0]} to {numbers[-1]}: {sum(rest)}"])


def beside_papers(found: Statistics) -> list[tuple[str, ...]]:
    """The means, and below them those of papers with their source, in :data:`PAPER_COLUMNS`."""
    spreads = (found.words, found.sentences, found.tokens)
    means = ("" if spread is None else f"{spread.mean:.2f}" for spread in spreads)
    return [("here", f"{found.images:,}", *means, ""), *PAPERS]


def tokens_note(found: Statistics) -> str:
    """Return a note to read before tokens are compared; empty where none were counted."""
    if not found.tokenizer:
        return ""
    return f"Tokens are those of {found.tokenizer}; other tokenizers count otherwise."
