"""The user's captions as they were given, for spans that count their characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glit.backends.captioners import CAPTIONERS
from glit.backends.protocols import CaptionLookup
from glit.data.records import Drop, Sample
from glit.inputs.region_file import CharacterSpan, RegionOfFile
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.text.spans import CleanText


class GivenCaptions:
    """Looks up captions once more, for images whose regions have spans.

    Args:
        lookup: of the caption step; None if models wrote the captions.
    """

    def __init__(self, lookup: CaptionLookup | None) -> None:
        self._lookup = lookup

    @classmethod
    def of(cls, plan: Plan) -> GivenCaptions:
        backend = CAPTIONERS[plan.recipe.caption.backend]
        return cls(None if backend.reads == "pixels" else backend.make(plan.brought))

    def of_regions(
        self,
        samples: Sequence[Sample],
        regions: Iterable[Sequence[RegionOfFile] | Drop],
        images: ImageSource,
    ) -> list[CleanText]:
        """The caption of every sample; made of the given one if its regions have spans.

        Args:
            samples: with captions.
            regions: of each sample, or why it has none.
            images: where the captions of files beside the images lie.
        """
        wanted = [
            sample.source_path
            for sample, found in zip(samples, regions, strict=True)
            if not isinstance(found, Drop) and any(map(_has_place, found))
        ]
        given = {}
        if wanted and self._lookup is not None:
            texts = self._lookup.find(wanted, images.text)
            given = dict(zip(wanted, texts, strict=True))
        return [self._clean(sample, given.get(sample.source_path)) for sample in samples]

    def _clean(self, sample: Sample, given: object) -> CleanText:
        assert sample.caption is not None
        if isinstance(given, dict):
            given = next(iter(given.values()), None)
        if isinstance(given, str) and self._lookup is not None:
            clean = CleanText(given, strip=self._lookup.strips)
            if clean.text == sample.caption.text:
                return clean
        return CleanText(sample.caption.text)


def _has_place(region: RegionOfFile) -> bool:
    return any(isinstance(said, CharacterSpan) for said in (*region.sentences, *region.phrases))
