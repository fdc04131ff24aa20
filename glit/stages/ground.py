"""Ground: boxes of the caption's own noun phrases, by an open-vocabulary detector or from a file.

Where a proposer offers what it knows or everything there is, a grounder looks for what the caption
says. Its boxes join the regions that compete for a sentence; which phrase found which is kept.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glit.data import rows
from glit.data.geometry import iou
from glit.data.records import Box, Drop, Region, Sample
from glit.data.rle import checked_mask
from glit.data.schema import ABOUT_MASKS, GROUNDING, MASKS, PHRASE, REGION
from glit.inputs.lookup import UserTable
from glit.inputs.region_file import RegionOfFile, phrase_span, read_region_file
from glit.models.backends.base import Backend
from glit.models.backends.grounders import GROUNDERS
from glit.models.backends.protocols import Grounder, GrounderConfig, PhraseDetections
from glit.models.tokenizer import SpanTokenizer, open_span_tokenizer
from glit.plain import limited
from glit.recipes.config import Choice, require_value
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.given_captions import GivenCaptions
from glit.stages.image_source import ImageSource, Loaded, loaded_batches, read_files
from glit.stages.plan import Plan
from glit.text.phrases import object_spans
from glit.text.spans import CleanText, Span, token_spans

SOURCE = "phrase"
_GROUP = 4  # detector batches looked at together


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundConfig(GrounderConfig):
    """Boxes of the noun phrases of every sentence."""

    enabled: bool = False
    """True looks for the caption's phrases with a detector, which needs the extra ``phrases``, or
    reads them from a file."""
    backend: str = "zero-shot"
    """``zero-shot``: LLMDet, MM-Grounding-DINO, Grounding DINO, OWLv2, OWL-ViT or OmDet-Turbo;
    ``sam3``: SAM 3; ``ultralytics``: YOLOE or YOLO-World. ``file`` and ``provided``: no model; the
    files of these backends of ``propose`` give phrases and their boxes."""
    add_regions: bool = True
    """True makes regions of boxes that are none yet; false keeps only phrases and regions that fit
    together."""
    same_iou: float = limited(0.7, above=0, most=1)
    """A box that overlaps a region with this IoU or more is that region. A cell of the grid never
    takes the place of a box."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in GROUNDERS.items()}
    )

    def check(self) -> None:
        backend = GROUNDERS.get(self.backend)
        require_value(
            not self.keep_masks or backend is None or backend.keeps_masks,
            f"[ground] keep_masks: backend = {self.backend!r} has no masks; take sam3, or leave it "
            "out",
        )
        require_value(
            not self.keep_masks or self.add_regions,
            "[ground] keep_masks: add_regions = false adds no region; leave one of the two out",
        )


class GroundStage(Stage):
    """Finds phrases in images: columns ``phrases`` and ``groundings``, and further regions."""

    name = "ground"
    version = 1
    reads = ("image", "sentences", "regions")
    makes = ("regions", "phrases", "groundings")
    title, role = "Phrases", "grounder"
    config = GroundConfig
    dataset_columns = (("phrases", pa.list_(PHRASE)), ("groundings", pa.list_(GROUNDING)))
    about: ClassVar = ABOUT_MASKS | {
        "phrases": "Noun phrases of the sentences, with their characters and tokens",
        "groundings": "Numbers of a phrase and of a region that shows it",
    }
    columns = (("regions", pa.list_(REGION)), *dataset_columns)

    def __init__(
        self, config: GroundConfig, grounder: Grounder | None, tokenizer: SpanTokenizer
    ) -> None:
        self._config = config
        self._grounder = grounder
        self._tokenizer = tokenizer

    @classmethod
    def chosen(cls, config: GroundConfig) -> type[GroundStage]:
        return KeepFoundMasks if config.keep_masks else cls

    @classmethod
    def backend(cls, config: GroundConfig) -> Backend:
        return GROUNDERS[config.backend]

    @classmethod
    def open(cls, plan: Plan) -> GroundStage:
        config = plan.config(GroundConfig)
        backend, tokenizer = cls.backend(config), open_span_tokenizer(plan.models["tokenizer"].path)
        if backend.reads == "file":
            return ReadPhrases(config, tokenizer, plan.regions, GivenCaptions.of(plan))
        return cls(config, backend.make(config, plan.models.get("grounder")), tokenizer)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for group in loaded_batches(samples, images, self._config.batch_size * _GROUP):
            good = [item for item in group if not isinstance(item[1], Drop)]
            found = iter(isolate(good, self._find))
            for sample, image in group:
                result = image if isinstance(image, Drop) else next(found)
                yield result if isinstance(result, Drop) else self._finished(sample, *result)

    def _find(
        self, items: Sequence[Loaded]
    ) -> list[tuple[list[dict[str, Any]], list[PhraseDetections]]]:
        """The phrases of each sample and what was found of them."""
        phrases = [phrases_of(sample, self._tokenizer) for sample, _ in items]
        pixels = [image for _, image in items if not isinstance(image, Drop)]
        texts = [[phrase["text"] for phrase in own] for own in phrases]
        assert self._grounder is not None
        return list(zip(phrases, self._grounder.find(pixels, texts), strict=True))

    def _finished(
        self, sample: Sample, phrases: list[dict[str, Any]], found: list[PhraseDetections]
    ) -> Sample:
        assert sample.regions is not None
        regions = list(sample.regions)
        groundings: list[dict[str, Any]] = []
        masks = list(sample.extra.get("masks", ()))
        for number, (phrase, each) in enumerate(zip(phrases, found, strict=True)):
            taken: set[int] = set()
            told = each.masks or ("",) * len(each.boxes)
            boxes, scores = each.boxes.tolist(), each.scores.tolist()
            for box, score, mask in zip(boxes, scores, told, strict=True):
                before = len(regions)
                region = self._region(regions, box, score, phrase["text"])
                if len(regions) > before and _marks(mask, box, sample):
                    masks.append({"region": region, "counts": mask})
                if region is not None and region not in taken:
                    taken.add(region)
                    groundings.append({"phrase": number, "region": region, "score": score})
        extra = {**sample.extra, "phrases": phrases, "groundings": groundings}
        if self._config.keep_masks:
            extra["masks"] = masks
        return dataclasses.replace(sample, regions=tuple(regions), extra=extra)

    def _region(
        self, regions: list[Region], box: list[float], score: float, label: str
    ) -> int | None:
        """The region that a box is, added where there is none yet; None where it may not be."""
        boxes = np.array([region.box.xyxy for region in regions], dtype=np.float64)
        overlap = iou(np.array([box]), boxes)[0]
        if self._config.add_regions:
            overlap[[region.is_grid for region in regions]] = 0
        best = int(overlap.argmax())
        if overlap[best] >= self._config.same_iou:
            return best
        if not self._config.add_regions:
            return None
        x0, y0, x1, y1 = box
        shape = Box(x0=x0, y0=y0, x1=x1, y1=y1)
        regions.append(Region(box=shape, score=score, label=label, source=SOURCE))
        return len(regions) - 1

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        own = {name: sample.extra[name] for name, _ in cls.dataset_columns}
        return {"regions": [rows.region_row(region) for region in sample.regions or ()], **own}

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        own = {name: row[name] for name, _ in cls.dataset_columns}
        regions = tuple(rows.region(each) for each in row["regions"])
        return dataclasses.replace(sample, regions=regions, extra={**sample.extra, **own})


class KeepFoundMasks(GroundStage):
    """With a column ``masks``, where they are kept; those that ``propose`` kept stay in it."""

    extends = ("masks",)
    dataset_columns = (*GroundStage.dataset_columns, MASKS)
    columns = (("regions", pa.list_(REGION)), *dataset_columns)


def _marks(mask: str, box: list[float], sample: Sample) -> bool:
    """Return whether there is a mask, and it marks the place of its box: detectors predict the two
    apart, and a dataset takes none that marks another place."""
    x0, y0, x1, y1 = box
    try:
        return bool(
            mask and checked_mask(mask, (x0, y0, x1, y1), height=sample.height, width=sample.width)
        )
    except ValueError:
        return False


class ReadPhrases(GroundStage):
    """Takes phrases and their boxes as a file gives them; no image is decoded."""

    def __init__(
        self,
        config: GroundConfig,
        tokenizer: SpanTokenizer,
        table: UserTable | None,
        captions: GivenCaptions,
    ) -> None:
        super().__init__(config, None, tokenizer)
        self._table, self._captions = table, captions

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        backend = self.backend(self._config)
        read = [*read_files(samples, images, backend, self._table, read_region_file)]
        captions = self._captions.of_regions(samples, read, images)
        for sample, regions, caption in zip(samples, read, captions, strict=True):
            yield regions if isinstance(regions, Drop) else self._given(sample, regions, caption)

    def _given(
        self, sample: Sample, regions: Sequence[RegionOfFile], caption: CleanText
    ) -> Outcome:
        found: dict[Span, list[Region]] = defaultdict(list)
        try:
            for each in regions:
                for said in each.phrases:
                    found[phrase_span(caption, said)].append(each.region)
        except ValueError as error:
            return Drop(reason="bad_masks", message=str(error))
        spans = [(_sentence_of(sample, span), *span) for span in sorted(found)]
        boxes = [
            PhraseDetections(
                boxes=np.array([region.box.xyxy for region in found[start, end]]),
                scores=np.array([region.score for region in found[start, end]], np.float32),
            )
            for _, start, end in spans
        ]
        return self._finished(sample, _phrase_rows(sample, spans, self._tokenizer), boxes)


def _sentence_of(sample: Sample, span: Span) -> int:
    """The sentence that shares most characters with a span."""
    shared = [
        min(sentence.char_end, span[1]) - max(sentence.char_start, span[0])
        for sentence in sample.sentences or ()
    ]
    return shared.index(max(shared))


def phrases_of(sample: Sample, tokenizer: SpanTokenizer) -> list[dict[str, Any]]:
    """The noun phrases of a sample's sentences that name things, as rows of ``phrases``."""
    assert sample.sentences is not None
    spans = [
        (number, sentence.char_start + start, sentence.char_start + end)
        for number, sentence in enumerate(sample.sentences)
        for start, end in object_spans(sentence.text)
    ]
    return _phrase_rows(sample, spans, tokenizer)


def _phrase_rows(
    sample: Sample, spans: Sequence[tuple[int, int, int]], tokenizer: SpanTokenizer
) -> list[dict[str, Any]]:
    """Rows of ``phrases``, of the number of a sentence and the first and last character each."""
    assert sample.caption is not None
    caption = sample.caption.text
    tokens = token_spans(caption, [(start, end) for _, start, end in spans], tokenizer.encode)
    return [
        {
            "sentence": number,
            "text": caption[start:end],
            "char_start": start,
            "char_end": end,
            "token_start": first,
            "token_end": last,
        }
        for (number, start, end), (first, last) in zip(spans, tokens, strict=True)
    ]
