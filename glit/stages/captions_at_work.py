"""The captions that a captioner is asked for one by one, until they are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from glit.backends.protocols import RawCaption
from glit.data.records import Drop, Sample
from glit.images import Pixels
from glit.stages.base import Outcome, isolate
from glit.stages.image_source import ImageSource

if TYPE_CHECKING:
    from glit.stages.caption import StreamCaptions


_RETRIED = ("empty_caption", "refusal", "looping", "wrong_language")


class CaptionsAtWork:
    """What a unit of samples has asked for, and what is known of them."""

    def __init__(
        self, stage: StreamCaptions, samples: Sequence[Sample], images: ImageSource
    ) -> None:
        self._stage, self._samples, self._images = stage, samples, images
        self._outcomes: dict[int, Outcome] = {}
        self._given = 0
        self.asked: dict[Future[RawCaption], tuple[int, int]] = {}
        """To the number of the sample and of the attempt."""
        self.broken: list[tuple[int, int]] = []
        """What failed with an error, which may have come from another at work."""

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
            if isinstance(answer, Drop) and not alone:
                self.broken.append((index, attempt))
                continue
            outcome = self._stage.checked(self._samples[index], answer, attempt)
            if not attempt and is_worth_retrying(outcome):
                self.ask(index, self._images.load(self._samples[index]), 1)  # pixels are not kept
            else:
                self._outcomes[index] = outcome

    def in_order(self) -> Iterator[Outcome]:
        """The outcomes that are next."""
        while self._given in self._outcomes:
            yield self._outcomes.pop(self._given)
            self._given += 1


def is_worth_retrying(outcome: Outcome) -> bool:
    """Whether the model may answer better when it is asked once more."""
    return isinstance(outcome, Drop) and outcome.reason in _RETRIED
