"""Captions in flight: requests that a captioner answers one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Protocol

from glit.backends.protocols import RawCaption
from glit.data.records import Drop, DropError, Sample
from glit.errors import GlitError
from glit.images import Pixels
from glit.stages.base import Outcome, isolate
from glit.stages.image_source import ImageSource

_RETRIED = ("empty_caption", "refusal", "looping", "wrong_language", "garbled_caption")


class RequestStage(Protocol):
    """A caption stage that sends one request to its captioner for every sample."""

    def submit(self, sample: Sample, image: Pixels, attempt: int) -> Future[RawCaption]:
        """Send the request for a sample's caption; attempt 0 is the first, 1 the retry."""
        ...

    def checked(self, sample: Sample, answer: RawCaption | Drop, attempt: int) -> Outcome:
        """The sample with its caption, or a drop with the reason why the answer is unusable."""
        ...


class CaptionsAtWork:
    """The requests and the known outcomes of a unit of samples."""

    def __init__(self, stage: RequestStage, samples: Sequence[Sample], images: ImageSource) -> None:
        self._stage, self._samples, self._images = stage, samples, images
        self._outcomes: dict[int, Outcome] = {}
        self._given = 0
        self.asked: dict[Future[RawCaption], tuple[int, int]] = {}
        """To the number of the sample and of the attempt."""
        self.broken: list[tuple[int, int]] = []
        """Requests that failed with an error, which may have come from another at work."""

    def ask(self, index: int, image: Pixels | Drop, attempt: int) -> None:
        if isinstance(image, Drop):
            self._outcomes[index] = image
        else:
            future = self._stage.submit(self._samples[index], image, attempt)
            self.asked[future] = (index, attempt)

    def take(self, done: Iterable[Future[RawCaption]], *, alone: bool = False) -> None:
        """Check the captions that are done: ask once more, or note an outcome or an error."""
        for future in done:
            index, attempt = self.asked.pop(future)
            [answer] = isolate([future], lambda each: [each[0].result()], reason="captioner_error")
            if isinstance(answer, Drop) and not (alone or _is_its_own(future)):
                self.broken.append((index, attempt))
                continue
            outcome = self._stage.checked(self._samples[index], answer, attempt)
            if not attempt and is_worth_retrying(outcome):
                self.ask(index, self._images.load(self._samples[index]), 1)  # pixels are not kept
            else:
                self._outcomes[index] = outcome

    def end(self, error: GlitError) -> None:
        """Give every sample without an answer a drop, once those that are being written came."""
        for future in self.asked:
            future.cancel()
        for future in wait(self.asked).done:
            index, attempt = self.asked.pop(future)
            if not future.cancelled() and future.exception() is None:
                sample = self._samples[index]
                self._outcomes[index] = self._stage.checked(sample, future.result(), attempt)
        missing = Drop(reason="captioner_error", message=f"not asked: {error}")
        for index in range(self._given, len(self._samples)):
            self._outcomes.setdefault(index, missing)

    @property
    def is_ready(self) -> bool:
        """True if the outcome of the next sample is known."""
        return self._given in self._outcomes

    def take_next(self) -> Outcome:
        """The outcome of the next sample, in their order."""
        self._given += 1
        return self._outcomes.pop(self._given - 1)


def answered(
    stages: Sequence[RequestStage], samples: Sequence[Sample], images: ImageSource
) -> Iterator[list[Outcome]]:
    """Return for every sample, in order, the outcome of each stage.

    All stages ask about an image before any of them asks about the next, so that it is decoded
    once, and an engine that keeps prefixes reads it once. A second try goes in among the others;
    only what failed with an error waits until the rest is done, and is then asked for alone.

    An error that concerns the run is raised after the last outcome: what was answered until then,
    and what the captioner is writing, was paid for. Samples without an answer are drops, which are
    kept nowhere, as the run ends.
    """
    units = [CaptionsAtWork(stage, samples, images) for stage in stages]
    try:
        yield from _asked(units, samples, images)
    except GlitError as error:
        for unit in units:
            unit.end(error)
        yield from _ready(units)
        raise
    finally:
        for unit in units:
            for future in unit.asked:
                future.cancel()


def _asked(
    units: Sequence[CaptionsAtWork], samples: Sequence[Sample], images: ImageSource
) -> Iterator[list[Outcome]]:
    for index, image in enumerate(images.each(samples)):
        for unit in units:
            unit.ask(index, image, 0)
        for unit in units:
            unit.take([future for future in unit.asked if future.done()])
        yield from _ready(units)
    while asked := [future for unit in units for future in unit.asked]:
        done = wait(asked, return_when=FIRST_COMPLETED).done
        for unit in units:
            unit.take([future for future in unit.asked if future in done])
        yield from _ready(units)
    for unit in units:
        for index, attempt in unit.broken:
            unit.ask(index, images.load(samples[index]), attempt)
            while unit.asked:  # the answer, and that of a second try
                unit.take(wait(unit.asked).done, alone=True)
    yield from _ready(units)


def _is_its_own(failed: Future[RawCaption]) -> bool:
    """Return whether the error cannot have come from another at work."""
    return isinstance(failed.exception(), DropError)


def _ready(units: Sequence[CaptionsAtWork]) -> Iterator[list[Outcome]]:
    while all(unit.is_ready for unit in units):
        yield [unit.take_next() for unit in units]


def is_worth_retrying(outcome: Outcome) -> bool:
    """Return whether the model may answer better when it is asked once more."""
    return isinstance(outcome, Drop) and outcome.reason in _RETRIED
