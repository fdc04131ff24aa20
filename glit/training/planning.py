"""Plan one sample of a batch: choose its pairs and texts, and move its boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from glit.data.captions import SHORT, text_of_kind
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import LocalPair, local_pairs, phrase_pairs
from glit.models.clip.image_fit import ImageFit
from glit.models.clip.preprocess import fit_boxes
from glit.training.augment import Augmentation
from glit.training.config import CaptionChoice, LocalChoice, PairChoice, PatchChoice
from glit.training.objective import InputSpec, Objective
from glit.training.sample import PlannedSample

Augment = Callable[[int, int, str], Augmentation]
"""From an image's width, height (px) and its captions and false sentences: its crop and whether it
is mirrored."""

READ_COLUMNS = (
    "sample_id",
    "image",
    "source_path",
    "width",
    "height",
    "caption",
    "sentences",
    "regions",
    "pairs",
)
"""All columns but the similarities, which no objective reads, and the false sentences."""


def read_columns(
    needs: InputSpec,
    local: LocalChoice = "sentence",
    patches: PatchChoice = "box",
    *,
    captions: bool = False,
) -> tuple[str, ...]:
    """The columns that samples are planned from."""
    phrases = ("phrases", "groundings") if needs.num_local and local != "sentence" else ()
    negatives = ("negatives",) if needs.num_negatives else ()
    masks = ("masks",) if patches == "mask" else ()
    several = ("captions",) if captions else ()
    return (*READ_COLUMNS, *phrases, *negatives, *masks, *several)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPairs:
    """Choose the local pairs of an image to learn from; see ``train.pairs``."""

    how: PairChoice = "best"
    min_probability: float = 0.0
    local: LocalChoice = "sentence"

    def in_row(self, group: RowGroup, row: int, draw: np.random.Generator) -> tuple[LocalPair, ...]:
        """The pairs of a row that there are to choose from; see ``train.local``."""
        if self.local == "sentence":
            return local_pairs(group, row)
        phrases = phrase_pairs(group, row)
        if self.local == "phrase":
            return phrases
        kinds = (local_pairs(group, row), phrases)
        in_turn = zip_longest(*(kinds if draw.integers(2) else kinds[::-1]))
        return tuple(pair for both in in_turn for pair in both if pair is not None)

    def of(self, pairs: tuple[LocalPair, ...], draw: np.random.Generator) -> tuple[LocalPair, ...]:
        """The pairs in the order in which they are taken.

        ``sample`` orders them as drawing one after the other by probability does, without putting
        back (Gumbel's trick: sorted by log p + Gumbel noise; Kool et al. 2019, section 2.3).
        """
        if self.min_probability:
            pairs = tuple(p for p in pairs if (p.probability or 0.0) >= self.min_probability)
        if self.how == "best" or not pairs:
            return pairs
        if self.how == "weighted":
            return tuple(replace(pair, weight=pair.probability or 0.0) for pair in pairs)
        likely = np.array([pair.probability or 0.0 for pair in pairs])
        with np.errstate(divide="ignore"):  # probability 0 comes last
            keys = np.log(likely) + draw.gumbel(size=len(pairs))
        return tuple(pairs[index] for index in np.argsort(-keys, kind="stable"))


BEST_PAIRS = ChosenPairs()


def plan_sample(
    group: RowGroup,
    row: int,
    objective: Objective,
    *,
    side: int,
    fit: ImageFit,
    chosen: ChosenPairs = BEST_PAIRS,
    draw: np.random.Generator,
    augment: Augment | None = None,
    caption: CaptionChoice = "long",
    draw_caption: np.random.Generator | None = None,
) -> PlannedSample:
    """Choose a sample's pairs and texts, and move its boxes into the model's square.

    Args:
        group: with the columns of READ_COLUMNS.
        row: number in the group.
        objective: says what is needed.
        side: of the model's input square, pixels.
        fit: how an image becomes that square.
        chosen: which of its pairs.
        draw: randomness of this sample.
        augment: crops and mirrors its image.
        caption: the text of the whole image.
        draw_caption: randomness of this sample, where that is drawn.
    """
    needs, long = objective.needs, group.value("caption", row)
    captions = group.captions_of(row)
    text = chosen_caption(long, captions, caption, draw_caption)
    short = text_of_kind(captions, SHORT)
    width, height = group.value("width", row), group.value("height", row)
    ordered = chosen.of(chosen.in_row(group, row, draw), draw) if needs.num_local else ()
    augmentation = None
    if augment is not None:
        said_false = [each.text for pair in ordered for each in pair.negatives]
        texts = " ".join(dict.fromkeys([long, text, short or long, *said_false]))
        augmentation = augment(width, height, texts)
        ordered, (width, height) = augmentation.pairs(ordered), augmentation.size
    pairs = best_pairs(ordered, most=needs.num_local, distinct_regions=needs.distinct_regions)
    if needs.num_negatives:
        pairs = tuple(_with_negatives(pair, needs.num_negatives, draw) for pair in pairs)
    boxes = np.array([pair.box_xyxy for pair in pairs], dtype=np.float64).reshape(-1, 4)
    return PlannedSample(
        group=group,
        row=row,
        caption=text,
        pairs=pairs,
        boxes_K4=fit_boxes(boxes, side=side, fit=fit, width=width, height=height),
        texts=_texts(group, row, long, short, objective, draw) if needs.num_texts else (),
        augmentation=augmentation,
    )


def _with_negatives(pair: LocalPair, most: int, draw: np.random.Generator) -> LocalPair:
    """Keep at most ``most`` hard negatives of a pair, drawn at random, kinds in turn.

    A sentence has many wrong colours, but its relation can be turned round in one way only, which
    would seldom be drawn if all were drawn alike.
    """
    mixed = [pair.negatives[index] for index in draw.permutation(len(pair.negatives))]
    turns, seen = [], Counter[str]()
    for negative in mixed:
        turns.append(seen[negative.kind])
        seen[negative.kind] += 1
    order = np.argsort(turns, kind="stable")[:most]
    return replace(pair, negatives=tuple(mixed[index] for index in order))


def _texts(
    group: RowGroup,
    row: int,
    caption: str,
    short: str | None,
    objective: Objective,
    draw: np.random.Generator,
) -> tuple[str, ...]:
    sentences = group.sentences
    spans = [
        (int(sentences["char_start"][at]), int(sentences["char_end"][at]))
        for at in sentences.span(row)
    ]
    named: dict[str, Any] = {"short": short} if objective.takes_short else {}
    found = tuple(objective.texts(caption, spans, draw, **named))
    assert len(found) <= objective.needs.num_texts, f"{len(found)} texts of {type(objective)}"
    return found


def best_pairs(
    pairs: tuple[LocalPair, ...], *, most: int, distinct_regions: bool
) -> tuple[LocalPair, ...]:
    """The first ``most`` pairs; with ``distinct_regions`` only the best sentence of each region."""
    if not distinct_regions:
        return pairs[:most]
    seen: set[tuple[float, ...]] = set()
    kept = []
    for pair in pairs:
        if pair.box_xyxy not in seen:
            seen.add(pair.box_xyxy)
            kept.append(pair)
    return tuple(kept[:most])


def reads_captions(objective: Objective, caption: CaptionChoice = "long") -> bool:
    """Return whether samples are planned from the column ``captions``, where the dataset has it."""
    return caption != "long" or bool(objective.takes_short and objective.needs.num_texts)


def chosen_caption(
    caption: str,
    captions: Sequence[Mapping[str, Any]],
    how: CaptionChoice,
    draw: np.random.Generator | None,
) -> str:
    """The text that an image is compared with; see ``train.caption``.

    Args:
        caption: the sample's long one.
        captions: all that it has; it may have none.
        how: the choice.
        draw: randomness of this sample, for ``sample``.
    """
    if how == "short":
        return text_of_kind(captions, SHORT) or caption
    if how == "sample" and captions:
        assert draw is not None
        return captions[int(draw.integers(len(captions)))]["text"]
    return caption
