"""The page that asks, shown to a browser on this machine."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from PIL import Image

from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import GlitError, InputError
from glit.images import decode
from glit.label.choose import choose, pair_of
from glit.label.verdicts import VERDICTS, Labelled, add_verdict, read_verdicts

HOST = "127.0.0.1"
_POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
)
_LONGEST_BODY = 4096
_SHOWN = ("image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp")


class Questions:
    """The pairs that are asked about, and the answers so far; several threads may use it."""

    def __init__(self, dataset: Dataset, answers: Path, *, num: int, seed: int) -> None:
        self._dataset = dataset
        self._answers = answers
        self._seed = seed
        self._rows = choose(dataset, num=num, seed=seed)
        self._given = read_verdicts(answers)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def question(self, number: int) -> dict[str, Any]:
        """What the page shows of a pair, with its answer if there is one.

        Raises:
            IndexError: there is no such question.
        """
        row, labelled = self._asked(number)
        sentence, region = row.sentences[labelled["sentence"]], row.regions[labelled["region"]]
        given = self._given.get((row.sample_id, labelled["sentence"]))
        return {
            "number": number,
            "total": len(self),
            "path": row.source_path,
            "size": [row.width, row.height],
            "box": list(region.box.xyxy),
            "before": row.caption.text[: sentence.char_start],
            "sentence": sentence.text,
            "after": row.caption.text[sentence.char_end :],
            "verdict": None if given is None else given.verdict,
        }

    def image(self, number: int) -> bytes:
        """The encoded image file of a question."""
        return self._dataset[self._rows[number]].encoded()

    def answer(self, number: int, verdict: Any) -> None:
        """Keep an answer.

        Raises:
            InputError: it is none, or the file cannot be written.
        """
        if verdict not in VERDICTS:
            raise InputError(f"verdict {verdict!r}: want one of {', '.join(VERDICTS)}")
        _, labelled = self._asked(number)
        made = Labelled(**labelled, verdict=verdict)
        with self._lock:
            add_verdict(self._answers, made)
            self._given[made.key] = made

    def first_open(self) -> int:
        """The first question without an answer; 0 when all have one."""
        for number in range(len(self)):
            row, labelled = self._asked(number)
            if (row.sample_id, labelled["sentence"]) not in self._given:
                return number
        return 0

    def _asked(self, number: int) -> tuple[Row, dict[str, Any]]:
        if not 0 <= number < len(self):
            raise IndexError(f"question {number} of {len(self)}")
        row = self._dataset[self._rows[number]]
        pair = pair_of(row.pairs, number=self._rows[number], seed=self._seed)
        return row, {"sample_id": row.sample_id, "sentence": pair.sentence, "region": pair.region}


def shown(encoded: bytes) -> tuple[str, bytes]:
    """Kind and bytes of an image that a browser shows; formats that it does not know as PNG."""
    kind = Image.open(BytesIO(encoded)).get_format_mimetype() or ""
    if kind in _SHOWN:
        return kind, encoded
    written = BytesIO()
    Image.fromarray(decode(encoded)).save(written, "PNG")
    return "image/png", written.getvalue()


class LabelServer(ThreadingHTTPServer):
    """Answers requests that name this machine, and no other: no page elsewhere can ask it."""

    daemon_threads = True

    def __init__(self, questions: Questions, *, port: int = 0) -> None:
        self.questions = questions
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror or error}") from error

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    @property
    def _questions(self) -> Questions:
        return cast(LabelServer, self.server).questions

    def do_GET(self) -> None:
        """The page, a question, an image."""
        self._respond(self._get)

    def do_POST(self) -> None:
        """An answer."""
        self._respond(self._post)

    def _respond(self, work: Any) -> None:
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in (HOST, "localhost"):
            self._send(HTTPStatus.FORBIDDEN, b"this page is for this machine only", "text/plain")
            return
        try:
            kind, body = work()
        except (IndexError, ValueError):
            self._send(HTTPStatus.NOT_FOUND, b"no such question", "text/plain")
        except GlitError as error:
            self._send(HTTPStatus.CONFLICT, str(error).encode(), "text/plain; charset=utf-8")
        else:
            self._send(HTTPStatus.OK, body, kind)

    def _get(self) -> tuple[str, bytes]:
        questions = self._questions
        part, _, number = self.path.strip("/").partition("/")
        if not part:
            page = files("glit.label").joinpath("page.html").read_text("utf-8")
            return "text/html; charset=utf-8", page.encode()
        if part == "next":
            return "application/json", json.dumps(questions.first_open()).encode()
        if part == "question":
            return "application/json", json.dumps(questions.question(int(number))).encode()
        if part == "image":
            return shown(questions.image(int(number)))
        raise IndexError(self.path)

    def _post(self) -> tuple[str, bytes]:
        # a form of another page can send no JSON without asking first
        if self.headers.get_content_type() != "application/json":
            raise InputError("want JSON")
        length = min(int(self.headers.get("Content-Length", 0)), _LONGEST_BODY)
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict) or type(body.get("number")) is not int:
            raise InputError("want a number and a verdict")
        self._questions.answer(body["number"], body.get("verdict"))
        return "application/json", b"{}"

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
