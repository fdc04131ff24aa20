"""Base of captioners that accept images one by one while others are in flight."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Self, TypeVar

from glit.images import Pixels
from glit.models.backends.protocols import Meter, RawCaption
from glit.text.structured import Keys

Out = TypeVar("Out")


def settle(future: Future[Out], call: Callable[[], Out]) -> None:
    """Set a future to a call's result or exception, as an executor does."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - belongs to who waits for the future
        future.set_exception(error)
    else:
        future.set_result(result)


class ContinuousBase(ABC):
    """Bounds how many images are at work, and answers whole batches for who has them.

    Args:
        most: images at work at a time, of all threads together.
        keys: of the JSON object that it must answer with; none for plain text.
    """

    _prompt: str

    def __init__(self, most: int, *, keys: Keys = ()) -> None:
        self._keys = keys
        self._free = threading.BoundedSemaphore(most)
        self.meter = Meter()

    def submit(self, image: Pixels | None, *, seed: int, temperature: float) -> Future[RawCaption]:
        self._free.acquire()
        try:
            answer = self._start(image, seed, temperature)
        except BaseException:
            self._free.release()
            raise
        answer.add_done_callback(lambda _: self._free.release())
        return answer

    def caption(
        self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
    ) -> list[RawCaption]:
        asked = [
            self.submit(image, seed=seed, temperature=temperature)
            for image, seed in zip(images, seeds, strict=True)
        ]
        return [answer.result() for answer in asked]

    def asking(self, prompt: str, keys: Keys | None = None) -> Self:
        """The same engine with another prompt, and with the same bound."""
        other = copy.copy(self)
        other._prompt = prompt
        other._keys = self._keys if keys is None else keys
        return other

    @abstractmethod
    def _start(self, image: Pixels | None, seed: int, temperature: float) -> Future[RawCaption]:
        """The caption, or the answer to the prompt alone, to come."""
