"""The user's captions as they were given, for spans that count their characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from glit.data.records import Drop, Sample
from glit.inputs.region_file import CharacterSpan, RegionOfFile
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.protocols import CaptionLookup
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.text.spans import CleanText


def look_up(
    lookup: CaptionLookup, samples: Sequence[Sample], images: ImageSource
) -> list[str | Mapping[str, str] | Drop]:
    """Return the captions of every sample, or its drop. Those of its twins are its own as well, if
    they do not contradict.

    Args:
        lookup: of captions by path.
        samples: whose captions.
        images: where the captions of files beside the images lie.
    """
    found = list(lookup.find([sample.source_path for sample in samples], images.text))
    for number, sample in enumerate(samples):
        if sample.twins:
            paths = (sample.source_path, *sample.twins)
            texts = (found[number], *lookup.find(sample.twins, images.text))
            found[number] = _joined(dict(zip(paths, texts, strict=True)))
    return found


def _joined(found: Mapping[str, str | Mapping[str, str] | Drop]) -> str | Mapping[str, str] | Drop:
    """The captions of equal images, by path: one for all, unless they contradict."""
    said = {path: texts for path, texts in found.items() if not _is_empty(texts)}
    for drop in said.values():
        if isinstance(drop, Drop):
            return drop
    first, *others = said or found
    joined = {kind: (text, first) for kind, text in _by_kind(found[first]).items()}
    for path in others if said else ():
        for kind, text in _by_kind(found[path]).items():
            known, where = joined.setdefault(kind, (text, path))
            if known.split() != text.split():
                what = f" of the kind {kind!r}" if kind else ""
                return Drop(
                    reason="ambiguous_caption",
                    message=f"{where} and {path} are the same picture with different captions{what}"
                    "; leave one of them",
                )
    texts = {kind: text for kind, (text, _) in joined.items()}
    if isinstance(found[first], Drop):
        return found[first]
    return next(iter(texts.values())) if texts.keys() == {""} else texts


def _by_kind(texts: str | Mapping[str, str] | Drop) -> Mapping[str, str]:
    return texts if isinstance(texts, Mapping) else {"": texts} if isinstance(texts, str) else {}


def _is_empty(texts: str | Mapping[str, str] | Drop) -> bool:
    """Return whether a lookup says nothing of an image."""
    if isinstance(texts, Drop):
        return texts.reason == "no_caption"
    return not any(text.strip() for text in _by_kind(texts).values())


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
            sample
            for sample, found in zip(samples, regions, strict=True)
            if not isinstance(found, Drop) and any(map(_has_place, found))
        ]
        given = {}
        if wanted and self._lookup is not None:
            texts = look_up(self._lookup, wanted, images)
            given = dict(zip((sample.source_path for sample in wanted), texts, strict=True))
        return [self._clean(sample, given.get(sample.source_path)) for sample in samples]

    def _clean(self, sample: Sample, given: object) -> CleanText:
        assert sample.caption is not None
        if isinstance(given, Mapping):
            given = next(iter(given.values()), None)
        if isinstance(given, str) and self._lookup is not None:
            clean = CleanText(given, strip=self._lookup.strips)
            if clean.text == sample.caption.text:
                return clean
        return CleanText(sample.caption.text)


def _has_place(region: RegionOfFile) -> bool:
    return any(isinstance(said, CharacterSpan) for said in (*region.sentences, *region.phrases))
