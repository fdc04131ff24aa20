"""Serve the report page of a whole dataset to this machine (``glit view --serve``)."""

from __future__ import annotations

import math
from functools import cached_property
from threading import Lock
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import duckdb

from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import InputError, first_line
from glit.images import ImageError
from glit.runtime import local_server as loopback
from glit.runtime.local_server import Answer, as_json, whole_number
from glit.stages.quality import has_quality
from glit.view.charts import charts, figures, labels, sources, totals
from glit.view.dropped import dropped
from glit.view.embeddings import MOST, Embeddings
from glit.view.originals import Originals
from glit.view.page_file import json_for_html, page_html
from glit.view.quality import quality
from glit.view.report import overview
from glit.view.samples import sample
from glit.view.search import Asked, Search
from glit.view.story import left_out

PAGE = 20
"""Samples an answer."""
_ROWS_KEPT, _PICTURES_KEPT = 64, 8
_PICTURE = ("sample_id", "source_path", "image")


class DatasetSite(loopback.Site):
    """The data behind the page; threads may share it."""

    def __init__(self, dataset: Dataset, *, where: str = "") -> None:
        self._dataset = dataset
        self._search = Search(dataset, where=where)
        columns = [name for name in dataset.schema.names if name != "image"]
        self._rows = RowGroupCache(dataset, capacity=_ROWS_KEPT, columns=columns)
        self._pictures = RowGroupCache(dataset, capacity=_PICTURES_KEPT, columns=_PICTURE)
        self._originals = Originals.of(dataset.path, dataset.image_root)
        self._counting = Lock()
        self._embeddings = Embeddings.of(dataset, self._embedded_rows)

    def close(self) -> None:
        if self._embeddings is not None:
            self._embeddings.close()
        self._search.close()

    def _embedded_rows(self) -> list[int]:
        return self._search.find(Asked(), first=0, most=MOST)[1]

    def page(self) -> str:
        """The page itself; it requests everything else."""
        data = {
            **overview(self._dataset),
            "kind": "serve",
            "selection": {"all": len(self._dataset), "where": self._search.where},
            "embeddings": 0 if self._embeddings is None else MOST,
        }
        further = ("quality",) if has_quality(self._dataset.schema) else ()
        return page_html(
            json_for_html(data), images="'self' data:", connect="'self'", further=further
        )

    def samples(self, asked: Asked, first: int) -> dict[str, Any]:
        """A page of samples."""
        total, numbers = self._search.find(asked, first=first, most=PAGE)
        return {"total": total, "samples": [self._sample(number) for number in numbers]}

    def _sample(self, number: int) -> dict[str, Any]:
        group, row = self._dataset.locate(number)
        return sample(self._rows.get(group)[row], number=number, image=f"image/{number}")

    def similar(self, embeddings: Embeddings, number: int) -> dict[str, Any]:
        """The samples with the most similar image embeddings, itself first, with their cosines;
        while embeddings are computed, the progress instead."""
        found = embeddings.nearest(number, PAGE)
        if "nearest" not in found:
            return found
        shown = [self._sample(near) | {"cosine": cosine} for near, cosine in found["nearest"]]
        return {"total": len(shown), "samples": shown}

    def dropped(self, words: dict[str, str]) -> dict[str, Any]:
        """Return a page of images that are not in the dataset, for one reason."""
        first = whole_number(words.get("first", "0"))
        total, rows = dropped(
            self._search.connection.cursor(), self._originals, why=words.get("why", ""),
            text=words.get("text", ""), first=first, most=PAGE, pictures=PAGE,
        )  # fmt: skip
        return {"total": total, "samples": [], "dropped": rows}

    def numbers(self) -> dict[str, Any]:
        """The counts over the whole dataset; the first request waits for them."""
        with self._counting:
            return self._numbers

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        cursor = self._search.connection.cursor()
        measured = has_quality(self._dataset.schema)
        return {"totals": totals(cursor), "left_out": left_out(cursor), "charts": charts(cursor),
                "figures": figures(self._dataset), "sources": sources(cursor),
                "labels": labels(cursor),
                **({"quality": quality(self._dataset, cursor)} if measured else {})}  # fmt: skip

    def image(self, number: int) -> Answer:
        """A full-size upright image in a format that browsers show, and its media type.

        Raises:
            InputError: there is no such row, or the file is damaged.
        """
        if not 0 <= number < len(self._dataset):
            raise InputError(f"no row {number}")
        group, row = self._dataset.locate(number)
        try:
            return loopback.shown(self._pictures.get(group).image(row))
        except ImageError as error:
            raise InputError(f"the image is damaged: {error}") from error

    def answer(self, address: str) -> Answer:
        try:
            return self._answer(address)
        except duckdb.Error as error:
            raise InputError(f"the rows cannot be counted ({first_line(error)})") from error

    def _answer(self, address: str) -> Answer:
        asked = urlsplit(address)
        if asked.path == "/":
            return self.page().encode(), "text/html; charset=utf-8"
        if asked.path == "/numbers":
            return as_json(self.numbers())
        if asked.path == "/samples":
            words = {name: values[0] for name, values in parse_qs(asked.query).items()}
            first = whole_number(words.pop("first", "0"))
            return as_json(self.samples(_asked(words), first))
        if asked.path == "/dropped":
            words = {name: values[0] for name, values in parse_qs(asked.query).items()}
            return as_json(self.dropped(words))
        if asked.path == "/map" and self._embeddings is not None:
            return as_json(self._embeddings.map())
        if asked.path.startswith("/similar/") and self._embeddings is not None:
            number = whole_number(asked.path.removeprefix("/similar/"))
            return as_json(self.similar(self._embeddings, number))
        if asked.path.startswith("/image/"):
            return self.image(whole_number(asked.path.removeprefix("/image/")))
        raise InputError(f"nothing at {asked.path}")


class PageServer:
    """Serves a :class:`Site`; used with ``with``.

    Args:
        dataset: a finished one.
        port: of the loopback address; 0 takes a free one.
        where: see :class:`Search`.

    Raises:
        UserError: the port is taken, or the condition is wrong.
    """

    def __init__(self, dataset: Dataset, *, port: int, where: str = "") -> None:
        self._site = DatasetSite(dataset, where=where)
        try:
            self._server = loopback.loopback_server(self._site, port=port)
        except BaseException:
            self._site.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.server_close()
        self._site.close()

    @property
    def address(self) -> str:
        return loopback.address_of(self._server)

    def serve(self) -> None:
        """Answer until :meth:`stop` or an interrupt."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End :meth:`serve`, from another thread."""
        self._server.shutdown()


def _asked(words: dict[str, str]) -> Asked:
    """From a query string.

    Raises:
        InputError: a field that is unknown, or a number that is none.
    """
    fields: dict[str, Any] = dict(words)
    for name in {"at_least", "at_most"} & words.keys():
        fields[name] = float(words[name])
        if not math.isfinite(fields[name]):
            raise InputError(f"{name}: found {words[name]!r}, want a number")
    try:
        return Asked(**fields)
    except TypeError as error:
        raise InputError(f"samples: {error}") from error
