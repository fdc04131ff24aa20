"""``glit view DATASET --serve``: the page over all of a dataset, for this machine alone.

It listens on the loopback address, answers GET and nothing else, and refuses requests that were
sent to another name than this machine's, as pages of others would send them.
"""

from __future__ import annotations

import io
import json
import math
from functools import cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from PIL import Image

from glit.dataset.reader import Dataset, RowGroupCache
from glit.errors import GlitError, InputError, UserError
from glit.images import ImageError, decode, upright_file
from glit.view.charts import charts, sources, totals
from glit.view.page_file import json_for_html, page_html
from glit.view.report import overview
from glit.view.samples import sample
from glit.view.search import Asked, Search
from glit.view.story import left_out

PAGE = 20
"""Samples an answer."""
_HOSTS = ("127.0.0.1", "localhost")
_SHOWN = {".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".gif": "image/gif"}
_ROWS_KEPT, _PICTURES_KEPT = 64, 8
_PICTURE = ("sample_id", "source_path", "image")


class Site:
    """What can be asked for. Threads may share it."""

    def __init__(self, dataset: Dataset, *, where: str = "") -> None:
        self._dataset = dataset
        self._search = Search(dataset, where=where)
        columns = [name for name in dataset.schema.names if name != "image"]
        self._rows = RowGroupCache(dataset, capacity=_ROWS_KEPT, columns=columns)
        self._pictures = RowGroupCache(dataset, capacity=_PICTURES_KEPT, columns=_PICTURE)
        self._counting = Lock()

    def close(self) -> None:
        self._search.close()

    def page(self) -> str:
        """The page itself; it asks for everything else."""
        data = {
            **overview(self._dataset),
            "kind": "serve",
            "selection": {"all": len(self._dataset), "where": self._search.where},
        }
        return page_html(json_for_html(data), images="'self'", connect="'self'")

    def samples(self, asked: Asked, first: int) -> dict[str, Any]:
        """A page of samples."""
        total, numbers = self._search.find(asked, first=first, most=PAGE)
        found = []
        for number in numbers:
            group, row = self._dataset.locate(number)
            record = self._rows.get(group)[row]
            found.append(sample(record, number=number, image=f"image/{number}"))
        return {"total": total, "samples": found}

    def numbers(self) -> dict[str, Any]:
        """What is counted over the whole dataset; the first to ask waits."""
        with self._counting:
            return self._numbers

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        cursor = self._search.connection.cursor()
        return {"totals": totals(cursor), "left_out": left_out(cursor), "charts": charts(cursor),
                "sources": sources(cursor)}  # fmt: skip

    def image(self, number: int) -> tuple[bytes, str]:
        """A picture in full, upright, in a format that browsers show; and its kind.

        Raises:
            InputError: there is no such row.
            ImageError: the file is damaged.
        """
        if not 0 <= number < len(self._dataset):
            raise InputError(f"no row {number}")
        group, row = self._dataset.locate(number)
        encoded = self._pictures.get(group).image(row)
        data, suffix = upright_file(encoded)
        if suffix in _SHOWN:
            return data, _SHOWN[suffix]
        buffer = io.BytesIO()
        Image.fromarray(decode(encoded)).save(buffer, "PNG")
        return buffer.getvalue(), "image/png"


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
        self._site = Site(dataset, where=where)
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, self._site))
        except OSError as error:
            self._site.close()
            raise UserError(
                f"--port {port}: cannot listen there ({error.strerror or error}); choose another"
            ) from error
        self._server.daemon_threads = True

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
        return f"http://127.0.0.1:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer until :meth:`stop` or an interrupt."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End :meth:`serve`, from another thread."""
        self._server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, site: Site, *connection: Any) -> None:
        self._site = site
        super().__init__(*connection)  # answers

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in _HOSTS:
            self._answer(421, b"this server answers on 127.0.0.1 alone", "text/plain")
            return
        try:
            self._answer(200, *self._found())
        except (UserError, ValueError) as error:
            self._answer(404, str(error).encode(), "text/plain; charset=utf-8")
        except GlitError as error:
            self._answer(500, str(error).encode(), "text/plain; charset=utf-8")

    def _found(self) -> tuple[bytes, str]:
        address = urlsplit(self.path)
        site = self._site
        if address.path == "/":
            return site.page().encode(), "text/html; charset=utf-8"
        if address.path == "/numbers":
            return _json(site.numbers())
        if address.path == "/samples":
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            first = max(0, int(asked.pop("first", "0")))
            return _json(site.samples(_asked(asked), first))
        if address.path.startswith("/image/"):
            try:
                return site.image(int(address.path.removeprefix("/image/")))
            except ImageError as error:
                raise InputError(f"the image is damaged: {error}") from error
        raise InputError(f"nothing at {address.path}")

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        keep = "private, max-age=600" if kind.startswith("image/") else "no-store"
        self.send_header("Cache-Control", keep)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""


def _json(value: Any) -> tuple[bytes, str]:
    return json.dumps(value, allow_nan=False).encode(), "application/json"


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
