"""Ask a model about samples: many at a time, outcomes in order, and nothing that was paid for lost.

A stage says what it asks as a generator, one for each sample: it yields the requests that go out
together, is sent their answers, may ask again, and returns the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol

from glit.data.records import Drop, DropError, Sample
from glit.errors import GlitError
from glit.images import Pixels
from glit.models.backends.protocols import Captioner, RawCaption
from glit.stages.base import Outcome, isolate
from glit.stages.image_source import MOST_BYTES, ImageSource

SECOND_TRY_TEMPERATURE = 0.7
_NO_TEXT = ("empty_caption", "refusal")
"""Reasons of drops that are answers without a text."""


class Model(Protocol):
    """Answers requests as they come; as a ``ContinuousCaptioner`` of the backends does."""

    def submit(self, image: Pixels | None, *, seed: int, temperature: float) -> Future[RawCaption]:
        """Send a request; block only while the queue is full."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request about a sample."""

    model: Model
    """With its prompt."""
    temperature: float
    attempt: int
    """0, then 1; the seed follows from it and from the sample."""
    see: Callable[[Pixels], Pixels] | None = None
    """What the model sees of the image; None for no image."""


Answer = RawCaption | Drop
Talk = Generator[Sequence[Request], Sequence[Answer], Outcome]


def without_text(answer: Answer) -> Answer:
    """An empty text in place of a drop that says that there is none, as with a refused answer."""
    if isinstance(answer, Drop) and answer.reason in _NO_TEXT:
        return RawCaption(text="", cut=False)
    return answer


def asked(
    samples: Sequence[Sample],
    talk: Callable[[Sample], Talk],
    images: ImageSource | None = None,
    *,
    reason: str = "model_error",
) -> Iterator[Outcome]:
    """Yield the outcome of each sample's talk, in their order.

    A second try goes in among the first ones of other samples. What failed with an error, which may
    have come from another request at work, is asked for once more when the rest is done, alone.

    An error that concerns the run is raised after the last outcome: what was answered until then,
    and what the model is writing, was paid for. Samples without an answer are drops, which are kept
    nowhere, as the run ends.

    Args:
        samples: in order.
        talk: begins that of a sample.
        images: of the samples; None where no request sees one.
        reason: of the drop for an error.
    """
    work = _Work(samples, talk, images, reason)
    try:
        yield from work.run()
    except GlitError as error:
        work.end(error)
        yield from work.ready()
        raise
    finally:
        for future in work.flying:
            future.cancel()


@dataclass(slots=True)
class _Round:
    """The requests of a sample that went out together."""

    talk: Talk
    requests: Sequence[Request]
    answers: dict[int, Answer] = field(default_factory=dict)
    """By the number of the request."""


class _Work:
    """The talks about samples that are going on, and the outcomes of others."""

    def __init__(
        self,
        samples: Sequence[Sample],
        talk: Callable[[Sample], Talk],
        images: ImageSource | None,
        reason: str,
    ) -> None:
        self._samples, self._talk, self._images, self._reason = samples, talk, images, reason
        self._rounds: dict[int, _Round] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._given = 0
        self._is_ending = False
        self._batches: list[InBatches] = []
        self._broken: list[tuple[int, int]] = []
        self.flying: dict[Future[RawCaption], tuple[int, int]] = {}
        """To the numbers of the sample and of the request."""

    def run(self) -> Iterator[Outcome]:
        images = repeat(None) if self._images is None else self._images.each(self._samples)
        for index, (sample, image) in enumerate(zip(self._samples, images, strict=False)):
            if isinstance(image, Drop):
                self._outcomes[index] = image
            else:
                self._go_on(index, self._talk(sample), None, image)
            self._take([future for future in self.flying if future.done()])
            yield from self.ready()
        while self.flying:
            self._take(self._done(FIRST_COMPLETED))
            yield from self.ready()
        for index, number in self._broken:
            self._send(index, number, None)
            while self.flying:  # the answer, and those of a second try
                self._take(self._done(), alone=True)
        yield from self.ready()

    def end(self, error: GlitError) -> None:
        """Give every sample without an outcome a drop, once the answers in flight came."""
        self._is_ending = True
        answering = [future for future in self.flying if not future.cancel()]
        missing = Drop(reason=self._reason, message=f"not asked: {error}")
        wait(answering)
        for future in answering:
            if future.exception() is None:
                self._answered(*self.flying[future], future.result())
        self.flying.clear()
        for index in range(self._given, len(self._samples)):
            self._outcomes.setdefault(index, missing)

    def ready(self) -> Iterator[Outcome]:
        """The next outcomes in the samples' order, as far as they are known."""
        while self._given in self._outcomes:
            self._given += 1
            yield self._outcomes.pop(self._given - 1)

    def _done(self, when: str = "ALL_COMPLETED") -> list[Future[RawCaption]]:
        """Wait for answers; those that came, in the order in which they were asked for."""
        for each in self._batches:
            each.finish()
        wait(self.flying, return_when=when)
        return [future for future in self.flying if future.done()]

    def _go_on(
        self, index: int, talk: Talk, answers: Sequence[Answer] | None, image: Pixels | None = None
    ) -> None:
        """Give a talk its answers, and send what it asks then."""
        try:
            requests = next(talk) if answers is None else talk.send(answers)
            while not requests:
                requests = talk.send(())
        except StopIteration as stop:
            self._outcomes[index] = stop.value
            return
        if self._is_ending:
            talk.close()
            return
        self._rounds[index] = _Round(talk, requests)
        for number in range(len(requests)):
            self._send(index, number, image)

    def _send(self, index: int, number: int, image: Pixels | None) -> None:
        request, sample, seen = self._rounds[index].requests[number], self._samples[index], None
        if request.see is not None:
            assert self._images is not None
            found = self._images.load(sample) if image is None else image  # pixels are not kept
            if isinstance(found, Drop):
                self._answered(index, number, found)
                return
            seen = request.see(found)
        if isinstance(request.model, InBatches) and request.model not in self._batches:
            self._batches.append(request.model)
        seed = (int(sample.sample_id[:8], 16) + request.attempt) & 0x7FFF_FFFF
        future = request.model.submit(seen, seed=seed, temperature=request.temperature)
        self.flying[future] = index, number

    def _take(self, done: Iterable[Future[RawCaption]], *, alone: bool = False) -> None:
        """Note the answers that came; an error that another request may have caused waits."""
        for future in done:
            index, number = self.flying.pop(future)
            [answer] = isolate([future], lambda each: [each[0].result()], reason=self._reason)
            is_own = isinstance(future.exception(), DropError)
            if isinstance(answer, Drop) and not (alone or is_own):
                self._broken.append((index, number))
            else:
                self._answered(index, number, answer)

    def _answered(self, index: int, number: int, answer: Answer) -> None:
        of = self._rounds[index]
        of.answers[number] = answer
        if len(of.answers) == len(of.requests):
            answers = [of.answers[each] for each in range(len(of.requests))]
            self._go_on(index, of.talk, answers)


class InBatches:
    """A model that answers batches, as one that takes requests as they come.

    Args:
        captioner: the model.
        size: images of a batch; fewer large ones.
    """

    def __init__(self, captioner: Captioner, size: int) -> None:
        self._captioner, self._size = captioner, size
        self._waiting: dict[float, list[tuple[Pixels, int, Future[RawCaption]]]] = {}

    def submit(self, image: Pixels | None, *, seed: int, temperature: float) -> Future[RawCaption]:
        """Add to the batch of this temperature, which is answered here once it is full."""
        assert image is not None
        batch, future = self._waiting.setdefault(temperature, []), Future[RawCaption]()
        if batch and sum(each.nbytes for each, *_ in batch) + image.nbytes > MOST_BYTES:
            self._answer(temperature)
            batch = self._waiting.setdefault(temperature, [])
        batch.append((image, seed, future))
        if len(batch) >= self._size:
            self._answer(temperature)
        return future

    def finish(self) -> None:
        """Answer what waits."""
        for temperature in [*self._waiting]:
            self._answer(temperature)

    def _answer(self, temperature: float) -> None:
        def answers(some: Sequence[tuple[Any, ...]]) -> list[RawCaption]:
            images, seeds = [image for image, *_ in some], [seed for _, seed, _ in some]
            return self._captioner.caption(images, seeds=seeds, temperature=temperature)

        batch = [each for each in self._waiting.pop(temperature) if not each[2].cancelled()]
        try:
            found = isolate(batch, answers, reason="captioner_error")
        except Exception as error:  # noqa: BLE001 - belongs to who waits for the futures
            for *_, future in batch:
                future.set_exception(error)
            return
        for (*_, future), answer in zip(batch, found, strict=True):
            if isinstance(answer, Drop):
                future.set_exception(DropError(answer.reason, answer.message))
            else:
                future.set_result(answer)
