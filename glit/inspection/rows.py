"""Items of a finished dataset's rows, read with care: its files may break every promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from operator import index
from typing import Any

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.dataset.manifest import Manifest, read_manifest
from glit.errors import UserError, first_line
from glit.inputs.files import ImageFiles
from glit.inspection.findings import Estimate
from glit.inspection.items import Item, TextSpan, as_box
from glit.models.tokenizer import SpanTokenizer, open_span_tokenizer, tokenizer_hash
from glit.models.weights import look_up
from glit.models.weights import manifest as known_models
from glit.storage.store import Store, inside
from glit.text.spans import token_spans
from glit.verdicts.record import Claim

_ROWS = 64
"""Rows that are read at a time."""
_DEVIATIONS = 1.96
"""Standard deviations of an interval of 95 %."""
_IMPOSSIBLE = (
    pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError,
    OverflowError,
)  # fmt: skip


class DatasetSource:
    """A finished dataset; see :class:`glit.inspection.items.Source`.

    Args:
        dataset: folder or address.
        images: the ingested folder, for a dataset that stores images by path; empty for none.

    Raises:
        UserError: there is no finished dataset.
        DatasetError: its manifest is damaged.
    """

    format = "glit"

    def __init__(self, dataset: str, images: str) -> None:
        self.what, self.pictures, self.unlooked = dataset, images, {}
        self._store = Store(dataset)
        self._manifest = read_manifest(self._store)
        self.total = self._manifest.counts.shipped
        self._images = ImageFiles(images) if images else None
        self._tokenizer = _tokenizer(self._manifest)
        if self._tokenizer is None:
            name = self._manifest.tokenizer.name
            self.unlooked["token-span"] = f"the tokenizer {name!r} is not on this machine"
        self.language = self._manifest.recipe.language
        self._probable, self._wrong, self._variance = 0, 0.0, 0.0

    def items(self) -> Iterator[Item]:
        """Yield the rows; a file that cannot be read is a fault."""
        for name in self._manifest.data_files:
            number = 0
            try:
                with self._store.local_copy(name) as path, BoundedParquet(path) as file:
                    for batch in file.iter_batches(_ROWS):
                        for row in batch.to_pylist():
                            number += 1
                            yield self._item(row, f"{name}, row {number}")
            except _IMPOSSIBLE as error:
                detail = f"reading stopped after row {number}: {first_line(error)}"
                yield Item(name=name, faults=(("unreadable", detail),))

    def estimates(self) -> tuple[Estimate, ...]:
        """The certificates, and the mean of the calibrated probabilities, if there are any."""
        found = [
            Estimate(
                of=each.plan.claim.of, method=_certified(each.plan.claim), items=each.items,
                share=each.estimate, at_least=each.at_least, at_most=each.at_most,
            )
            for each in self._manifest.certificates
        ]  # fmt: skip
        if self._probable:
            share = self._wrong / self._probable
            apart = _DEVIATIONS * math.sqrt(self._variance) / self._probable
            found.append(
                Estimate(
                    of="pairs", items=self._probable, share=share,
                    method="calibrated probabilities; 95 % if they are right",
                    at_least=max(0.0, share - apart), at_most=min(1.0, share + apart),
                )
            )  # fmt: skip
        return tuple(found)

    def _item(self, row: dict[str, Any], where: str) -> Item:
        try:
            return self._read(row, where)
        except _IMPOSSIBLE as error:
            name = str(row.get("source_path") or where)
            detail = f"{where}: {type(error).__name__}: {first_line(error)}"
            return Item(name=name, where=where, faults=(("unreadable", detail),))

    def _read(self, row: dict[str, Any], where: str) -> Item:
        sentences, caption = row["sentences"], _text(row["caption"])
        self._count(row.get("pairs") or ())
        faults = list(self._token_faults(caption, sentences))
        looked_at = (("token-span", len(sentences)),) if self._tokenizer else ()
        further = (_text(e["text"]) for e in row.get("captions") or () if isinstance(e, dict))
        corners = ("x0", "y0", "x1", "y1")
        return Item(
            name=_text(row["source_path"]),
            where=where,
            captions=(caption, *(text for text in further if text != caption)),
            spans=tuple(
                TextSpan(
                    start=index(e["char_start"]), end=index(e["char_end"]), words=_text(e["text"])
                )
                for e in (*sentences, *(row.get("phrases") or ()))
            ),
            boxes=tuple(as_box(float(r[corner]) for corner in corners) for r in row["regions"]),
            pairs=tuple(_pairs(row)),
            stated=(row["width"], row["height"]),
            picture=self._picture(row),
            faults=tuple(faults),
            looked_at=looked_at,
        )

    def _picture(self, row: dict[str, Any]) -> Callable[[], bytes] | None:
        data = row["image"]["bytes"]
        if data is not None:
            return lambda: data
        if self._images is None:
            return None
        return partial(self._images.read, inside(row["source_path"]))

    def _token_faults(
        self, caption: str, sentences: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        """Yield sentences whose token span is not that of their characters."""
        spans = [(each["char_start"], each["char_end"]) for each in sentences]
        edges = [edge for span in spans for edge in span]
        if self._tokenizer is None or edges != sorted(edges) or not spans:
            return
        if edges[0] < 0 or edges[-1] > len(caption):
            return
        for each, due in zip(
            sentences, token_spans(caption, spans, self._tokenizer.encode), strict=True
        ):
            found = each["token_start"], each["token_end"]
            if found != due:
                yield "token-span", f"{[*found]} of {each['text'][:60]!r}, due are {[*due]}"

    def _count(self, pairs: Any) -> None:
        """Add the probabilities of the recommended pairs."""
        for pair in pairs:
            probability = pair.get("probability")
            if probability is not None and not pair["global_wins"] and 0 <= probability <= 1:
                self._probable += 1
                self._wrong += 1 - probability
                self._variance += probability * (1 - probability)


def _pairs(row: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Regions with the sentences that they are recommended for."""
    for pair in row.get("pairs") or ():
        number, region = pair["sentence"], pair["region"]
        is_there = 0 <= number < len(row["sentences"]) and 0 <= region < len(row["regions"])
        if is_there and not pair["global_wins"]:
            yield region, row["sentences"][number]["text"]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:60]} is no text")
    return value


def _certified(claim: Claim) -> str:
    return f"certificate from verdicts, with a confidence of {claim.confidence:.0%}"


def _tokenizer(manifest: Manifest) -> SpanTokenizer | None:
    """The dataset's tokenizer, if it is of a model that glit knows and on this machine: names of
    strangers may be paths, so no other is opened."""
    known = known_models()
    for name in (*manifest.recipe.tokenizers, manifest.tokenizer.name):
        path = look_up(name).path if name in known else None
        try:
            if path is not None and tokenizer_hash(path) == manifest.tokenizer.sha256:
                return open_span_tokenizer(path)
        except (UserError, OSError, ValueError, ImportError):
            continue
    return None
