"""Caption, or write texts, with any OpenAI-compatible server: concurrent requests, retries."""

from __future__ import annotations

import base64
import io
import ipaddress
import os
import random
import threading
import time
import urllib.request
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from PIL import Image

from glit.data.records import DropError
from glit.errors import RunError, UserError, cut, first_line
from glit.images import Pixels
from glit.masking import remember, remember_address, without_secrets
from glit.models.backends.base import PLAIN_BYTES, Backend
from glit.models.backends.captioners.async_captioner import ContinuousBase
from glit.models.backends.captioners.finish import is_cut
from glit.models.backends.captioners.generation_keys import set_by_recipe
from glit.models.backends.captioners.http_exchange import (
    Answer,
    BrokenAnswerError,
    TooLongError,
    exchange,
    reason,
    retry_after_s,
)
from glit.models.backends.protocols import RawCaption, WriterConfig
from glit.models.weights import Resolved
from glit.text.structured import CAPTION, json_schema

_BUSY = {429, 503, 529}
"""The server says itself that it will be well again."""
_RETRIED = {408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524, *_BUSY}
_REFUSES_ALL = {401, 402, 407}
"""Not for what the image shows."""
_REFUSES = {403, 404, 405, 410, 421}
_LONGEST_WAIT_S = 60.0
_REACH_S = 20.0
_GREY = np.full((64, 64, 3), 128, np.uint8)
_PROBE_TOKENS = 16


class EndpointCaptioner(ContinuousBase):
    """Sends each image to ``/chat/completions`` as a data URL, in PNG (lossless), or the prompt
    alone.

    What a server refuses may be the image or everything. Once an answer came, and otherwise where
    it answers about a plain grey image, it is the image.
    """

    def __init__(self, config: WriterConfig, model: Resolved | None, prompt: str) -> None:
        super().__init__(2 * config.batch_size, keys=CAPTION if config.structured else ())
        self._config = config
        self._prompt = prompt
        self._where = _where(config)
        self._client = _client(config)
        self._answered = threading.Event()
        self._threads = ThreadPoolExecutor(config.batch_size, thread_name_prefix="captions")
        weakref.finalize(self, _close, self._threads, self._client)

    def _start(self, image: Pixels | None, seed: int, temperature: float) -> Future[RawCaption]:
        return self._threads.submit(self._one, image, seed, temperature)

    def _one(self, image: Pixels | None, seed: int, temperature: float) -> RawCaption:
        """The answer of the server.

        Raises:
            UserError: the server refuses the key or does not know the model.
            RunError: the server cannot be reached at all, or fails after all retries.
            DropError: the server has no answer about this image.
        """
        body = self._body(image, seed, temperature)
        waits, failed = random.Random(seed), _Failed("no answer", "never asked")
        for attempt in range(self._config.retries + 1):
            wait_s = None
            self.meter.add(requests_repeated=min(attempt, 1))
            try:
                answer = self._exchange(body)
                wait_s = retry_after_s(answer.headers.get("retry-after"), time.time())
                status = _status(answer)
                if status in _RETRIED:
                    failed = _Failed(f"HTTP {status}", answer.words(), is_busy=status in _BUSY)
                elif status != 200:
                    self._refuse(status, answer, image)
                else:
                    said = answer.json()
                    self.meter.add(tokens=_tokens(said))
                    found = _caption(said, self._config)
                    self._answered.set()
                    return found
            except BrokenAnswerError as error:
                failed = _Failed("no usable answer", str(error), is_broken=True)
            except TooLongError as error:
                raise DropError("", str(error)) from error
            except httpx.TransportError as error:
                failed = _Failed("no answer", f"{type(error).__name__}: {first_line(error)}")
            if attempt < self._config.retries:
                time.sleep(_wait_s(attempt, wait_s, waits))
        self._give_up(failed, image)
        raise AssertionError("unreachable: giving up raises")

    def _body(self, image: Pixels | None, seed: int, temperature: float) -> dict[str, Any]:
        body = {
            "model": self._config.model,
            "messages": [{"role": "user", "content": _content(image, self._prompt)}],
            "max_tokens": self._config.max_tokens,
            "temperature": temperature,
            "seed": seed,
        }
        if self._keys:
            schema = {"name": "answer", "strict": True, "schema": json_schema(self._keys)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body |= set_by_recipe(self._config) | self._config.request
        return {key: value for key, value in body.items() if value != ""}

    def _exchange(self, body: dict[str, Any]) -> Answer:
        timeout_s = self._config.timeout_s
        return exchange(self._client, "POST", "/chat/completions", timeout_s=timeout_s, body=body)

    def _refuse(self, status: int, answer: Answer, image: Pixels | None) -> None:
        """Raise what a refusal is: of everything, or of this image.

        Raises:
            UserError: as above.
            DropError: as above.
        """
        table, said = self._config.table, f"HTTP {status} ({answer.words()})"
        of_all = status in _REFUSES_ALL
        if status in _REFUSES or 300 <= status < 400:
            of_all = not self._answered.is_set() and not self._answers_otherwise(image)
        if of_all:
            raise UserError(
                f"{self._where}: {said}; check {table}.endpoint, {table}.model and "
                f"${self._config.api_key_env}"
            )
        is_filter = status == 400 and b'"content_filter"' in answer.body
        name = "content_filter" if is_filter else ""
        raise DropError(name, f"the server refuses this one: {said}")

    def _give_up(self, failed: _Failed, image: Pixels | None) -> None:
        """Raise what is left after the last try.

        Raises:
            RunError: the server is not well.
            DropError: it answers, but not to this.
        """
        tries = f"{failed.what} after {self._config.retries + 1} tries ({failed.said})"
        if failed.is_broken or (not failed.is_busy and self._answers_otherwise(image)):
            raise DropError("", tries)
        raise RunError(
            f"{self._where}: {tries}; is the server up? The same command continues when it is "
            "well again"
        )

    def _answers_otherwise(self, image: Pixels | None) -> bool:
        """Return whether the server answers about a grey image, or, without one, to two words."""
        body = self._body(None if image is None else _GREY, 0, 0.0)
        if image is None:
            body["messages"] = [{"role": "user", "content": "Say yes."}]
        if "max_tokens" in body:
            body["max_tokens"] = min(_PROBE_TOKENS, self._config.max_tokens)
        try:
            answer = self._exchange(body)
            is_well = _status(answer) == 200 and bool(answer.json().get("choices"))
        except (httpx.TransportError, BrokenAnswerError, TooLongError):
            return False
        return is_well


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """A try that gave no answer."""

    what: str = field(kw_only=False)
    said: str = field(kw_only=False)
    is_busy: bool = False
    is_broken: bool = False


def _status(answer: Answer) -> int:
    """Return the status of HTTP, or of an error that stands inside a 200."""
    if answer.status != 200:
        return answer.status
    try:
        error = answer.json().get("error")
    except BrokenAnswerError:
        return 200
    code = str(error.get("code") if isinstance(error, dict) else "")
    return int(code) if code.isdecimal() and len(code) == 3 and code >= "400" else 200


def _tokens(answer: dict[str, Any]) -> int:
    """The tokens of prompt and answer by the server's own count; 0 if it gives none.

    >>> _tokens({"usage": {"prompt_tokens": 700, "completion_tokens": 65, "total_tokens": 765}})
    765
    >>> _tokens({"usage": None}), _tokens({"usage": {"total_tokens": "many"}})
    (0, 0)
    """
    usage = answer.get("usage")
    found = usage.get("total_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) and found > 0 else 0


def _caption(answer: dict[str, Any], config: WriterConfig) -> RawCaption:
    """The text of an answer.

    Raises:
        BrokenAnswerError: there is none, or a part of one.
        DropError: the server filtered or refused it, or the model only thought.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = reason(answer)
        raise BrokenAnswerError(f"an error in the answer: {cut(said)}" if said else "no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise BrokenAnswerError("the answer has no message")
    text = _text(message.get("content"))
    if text is None:
        said = cut(repr(message["content"]))
        raise DropError("", f"the answer's content is {said}, want a text")
    is_at_limit = is_cut(choices[0].get("finish_reason"), text)
    if text.strip():
        return RawCaption(text=text, cut=is_at_limit)
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        raise DropError("refusal", f"the server's model refused: {cut(refusal)}")
    if message.get("reasoning_content") or message.get("reasoning"):
        table = config.table
        raise DropError(
            "empty_caption",
            f"all {config.max_tokens} tokens went into thinking; raise {table}.max_tokens, or turn "
            "thinking off" if is_at_limit
            else "the answer holds thoughts alone; turn thinking off in the server",
        )  # fmt: skip
    return RawCaption(text="", cut=is_at_limit)


def _text(content: Any) -> str | None:
    """A message's content, a text or a list of parts of which some are text; None for neither."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if isinstance(part, dict):
            if part.get("type", "text") not in ("text", "output_text"):
                continue
            part = part.get("text")
        if not isinstance(part, str):
            return None
        texts.append(part)
    return "".join(texts)


def _where(config: WriterConfig) -> str:
    proxy = _proxy(config.endpoint)
    through = f" (through the proxy {without_secrets(proxy)})" if proxy else ""
    return f"{config.table} endpoint {without_secrets(config.endpoint)}{through}"


def _proxy(address: str) -> str:
    """The proxy of the environment that an address is reached through; empty for none."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return ""
    if _is_loopback(url.host) or urllib.request.proxy_bypass(f"{url.host}:{url.port or ''}"):
        return ""
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all") or ""


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine, which no proxy reaches."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _client(config: WriterConfig) -> httpx.Client:
    """A client of the server, whose key and password are hidden from now on.

    Raises:
        UserError: the address is none.
    """
    key = os.environ.get(config.api_key_env, "").strip()
    remember(key)
    remember_address(config.endpoint)
    headers = {"Accept-Encoding": "identity"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        return httpx.Client(
            base_url=config.endpoint.rstrip("/"),
            headers=headers,
            limits=httpx.Limits(max_connections=config.batch_size),
            trust_env=not _is_loopback(httpx.URL(config.endpoint).host),
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise UserError(
            f"{_where(config)}: {first_line(error)}; set {config.table}.endpoint to an address "
            "such as http://127.0.0.1:8000/v1"
        ) from error


def reach(config: WriterConfig) -> None:
    """Request the list of models; any HTTP answer except a refused key counts as reachable.

    Raises:
        UserError: nothing answers, the address is none, or the key is refused.
    """
    where = _where(config)
    with _client(config) as client:
        try:
            answer = exchange(client, "GET", "/models", timeout_s=min(config.timeout_s, _REACH_S))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UserError(
                f"{where}: no answer ({first_line(error)}); start the server, or set "
                f"{config.table}.endpoint to its address"
            ) from error
        except (TooLongError, BrokenAnswerError):
            return
    if answer.status == 401:  # with 403 a key may only be kept from listing models
        raise UserError(
            f"{where}: HTTP {answer.status}, the key is refused; check "
            f"${config.api_key_env} (the server says: {answer.words()})"
        )


def _longest_wait_s(config: WriterConfig) -> float:
    """Longest wait for an image whose every try takes the maximum, queued behind another."""
    return 2 * (config.retries + 2) * (config.timeout_s + _LONGEST_WAIT_S)


def _close(threads: ThreadPoolExecutor, client: httpx.Client) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    client.close()


def _wait_s(attempt: int, wanted_s: float | None, waits: random.Random) -> float:
    """Seconds to wait: what the server wants, else 0.5 s doubled each time, with jitter."""
    if wanted_s is not None:
        return min(wanted_s, _LONGEST_WAIT_S)
    return min(0.5 * 2**attempt, _LONGEST_WAIT_S) * (0.5 + waits.random() / 2)


def _content(image: Pixels | None, prompt: str) -> str | list[dict[str, Any]]:
    if image is None:
        return prompt
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": prompt},
    ]


ENDPOINT = Backend(
    make=EndpointCaptioner,
    continuous=True,
    needs_model=False,
    process_bytes=PLAIN_BYTES,
    on_server=True,
    counts_tokens=True,
    longest_wait_s=_longest_wait_s,
    reach=reach,
)
