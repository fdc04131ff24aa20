"""Caption, or write texts, with any OpenAI-compatible server: concurrent requests, retries."""

from __future__ import annotations

import base64
import io
import os
import random
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
from PIL import Image

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.captioners.async_captioner import ContinuousBase
from glit.backends.protocols import RawCaption, WriterConfig
from glit.backends.weights import Resolved
from glit.errors import RunError, UserError, first_line
from glit.images import Pixels
from glit.text.thoughts import CAPTION, json_schema

_RETRY_STATUS = {408, 409, 425, 429, 500, 502, 503, 504}
_LONGEST_WAIT_S = 60.0
_REACH_S = 20.0


class EndpointCaptioner(ContinuousBase):
    """Sends each image to ``/chat/completions`` as a data URL, in PNG (lossless), or the prompt
    alone."""

    def __init__(self, config: WriterConfig, model: Resolved | None, prompt: str) -> None:
        super().__init__(2 * config.batch_size, keys=CAPTION if config.structured else ())
        key = os.environ.get(config.api_key_env, "")
        self._config = config
        self._prompt = prompt
        self._client = httpx.Client(
            base_url=config.endpoint.rstrip("/"),
            timeout=config.timeout_s,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=config.batch_size),
        )
        self._threads = ThreadPoolExecutor(config.batch_size, thread_name_prefix="captions")
        weakref.finalize(self, _close, self._threads, self._client)

    def _start(self, image: Pixels | None, seed: int, temperature: float) -> Future[RawCaption]:
        return self._threads.submit(self._one, image, seed, temperature)

    def _one(self, image: Pixels | None, seed: int, temperature: float) -> RawCaption:
        """The answer of the server.

        Raises:
            UserError: the server refuses the key or does not know the model.
            RunError: the server cannot be reached at all, or fails after all retries.
        """
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
        answer = self._post(body)
        choice = answer["choices"][0]
        return RawCaption(
            text=choice["message"]["content"] or "", cut=choice.get("finish_reason") == "length"
        )

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        table = self._config.table
        where = f"{table} endpoint {self._config.endpoint}"
        waits = random.Random(body["seed"])
        for attempt in range(self._config.retries + 1):
            last = attempt == self._config.retries
            try:
                response = self._client.post("/chat/completions", json=body)
            except httpx.TransportError as error:
                if last:
                    raise RunError(
                        f"{where}: no answer after {attempt + 1} tries "
                        f"({type(error).__name__}: {error}); is the server up?"
                    ) from error
                time.sleep(_wait_s(attempt, None, waits))
                continue
            if response.status_code in (401, 403, 404):
                raise UserError(
                    f"{where}: HTTP {response.status_code} ({response.text[:200].strip()}); "
                    f"check {table}.endpoint, {table}.model and ${self._config.api_key_env}"
                )
            if response.status_code in _RETRY_STATUS and not last:
                time.sleep(_wait_s(attempt, response.headers.get("retry-after"), waits))
                continue
            if response.status_code in _RETRY_STATUS:
                raise RunError(
                    f"{where}: HTTP {response.status_code} after {attempt + 1} tries; "
                    "the same command continues when the server is well again"
                )
            response.raise_for_status()  # what is left concerns this image: a drop
            return response.json()
        raise AssertionError("unreachable: the last try returns or raises")


def reach(config: WriterConfig) -> None:
    """Request the list of models; any HTTP answer except a refused key counts as reachable.

    Raises:
        UserError: nothing answers, the address is none, or the key is refused.
    """
    where = f"{config.table} endpoint {config.endpoint}"
    key = os.environ.get(config.api_key_env, "")
    try:
        response = httpx.get(
            f"{config.endpoint.rstrip('/')}/models",
            timeout=min(config.timeout_s, _REACH_S),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise UserError(
            f"{where}: no answer ({first_line(error)}); start the server, or set "
            f"{config.table}.endpoint to its address"
        ) from error
    if response.status_code in (401, 403):
        raise UserError(
            f"{where}: HTTP {response.status_code}, the key is refused; check ${config.api_key_env}"
        )


def _longest_wait_s(config: WriterConfig) -> float:
    """Longest wait for an image whose every try takes the maximum, queued behind another."""
    return 2 * (config.retries + 1) * (config.timeout_s + _LONGEST_WAIT_S)


def _close(threads: ThreadPoolExecutor, client: httpx.Client) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    client.close()


def _wait_s(attempt: int, retry_after: str | None, waits: random.Random) -> float:
    """Seconds to wait: the server's ``Retry-After``, else 0.5 s doubled each time, with jitter."""
    if retry_after and retry_after.isdigit():
        return min(float(retry_after), _LONGEST_WAIT_S)
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
    longest_wait_s=_longest_wait_s,
    reach=reach,
)
