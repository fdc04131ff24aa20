"""One sample on its way into a batch: which pairs, decoded and fitted, with its texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.clip import ImageFit
from glit.clip.preprocess import crop, fit_boxes, fit_image
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import LocalPair, local_pairs
from glit.images import decode
from glit.train.config import PairChoice
from glit.train.objective import Objective

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
"""All columns but the similarities, which no objective reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One sample ready to be put into a batch."""

    caption: str
    global_image: UInt8[Tensor, "3 s s"] | None
    """None where whole images are not needed."""
    local_images: list[Tensor]
    """The crop of every pair, uint8 [3, side, side]."""
    pairs: tuple[LocalPair, ...]
    boxes_K4: Float[np.ndarray, "k 4"]
    """The pairs' regions in pixels of the model's square."""
    texts: tuple[str, ...] = ()
    """Further texts that the objective picked."""
    filler: bool = False
    """Whether it only fills up a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPairs:
    """Which local pairs of an image are learned from; see ``train.pairs``."""

    how: PairChoice = "best"
    min_probability: float = 0.0

    def of(self, pairs: tuple[LocalPair, ...], draw: np.random.Generator) -> tuple[LocalPair, ...]:
        """The pairs in the order in which they are taken.

        ``sample`` orders them as drawing one after the other by probability does, without putting
        back (Gumbel's trick: sorted by log p + Gumbel noise; Kool et al. 2019, section 2.3).
        """
        if self.min_probability:
            pairs = tuple(p for p in pairs if (p.probability or 0.0) >= self.min_probability)
        if self.how == "best" or not pairs:
            return pairs
        likely = np.array([pair.probability or 0.0 for pair in pairs])
        with np.errstate(divide="ignore"):  # probability 0 comes last
            keys = np.log(likely) + draw.gumbel(size=len(pairs))
        return tuple(pairs[index] for index in np.argsort(-keys, kind="stable"))


BEST_PAIRS = ChosenPairs()


def decode_sample(
    group: RowGroup,
    row: int,
    objective: Objective,
    *,
    side: int,
    fit: ImageFit,
    chosen: ChosenPairs = BEST_PAIRS,
    draw: np.random.Generator,
) -> Decoded:
    """Decode a sample once; fit the whole image and the crops of its pairs, move its boxes.

    Args:
        group: with the columns of READ_COLUMNS.
        row: number in the group.
        objective: says what is needed.
        side: of the model's input square, pixels.
        fit: how an image becomes that square.
        chosen: which of its pairs.
        draw: randomness of this sample.

    Raises:
        ImageError: the image is damaged.
    """
    needs = objective.needs
    pairs = best_pairs(
        chosen.of(local_pairs(group, row), draw),
        most=needs.num_local,
        distinct_regions=needs.distinct_regions,
    )
    caption = group.value("caption", row)
    need_pixels = needs.whole or pairs
    image = decode(group.image(row)) if need_pixels else np.zeros((1, 1, 3), dtype=np.uint8)
    boxes = np.array([pair.box_xyxy for pair in pairs], dtype=np.float64).reshape(-1, 4)
    size = {"width": group.value("width", row), "height": group.value("height", row)}
    whole = fit_image(image, side=side, fit=fit).contiguous() if needs.whole else None
    return Decoded(
        caption=caption,
        global_image=whole,
        local_images=[
            fit_image(crop(image, box), side=side, fit=fit).contiguous() for box in boxes
        ],
        pairs=pairs,
        boxes_K4=fit_boxes(boxes, side=side, fit=fit, **size),
        texts=_texts(group, row, caption, objective, draw) if needs.num_texts else (),
    )


def _texts(
    group: RowGroup, row: int, caption: str, objective: Objective, draw: np.random.Generator
) -> tuple[str, ...]:
    sentences = group.sentences
    spans = [
        (int(sentences["char_start"][at]), int(sentences["char_end"][at]))
        for at in sentences.span(row)
    ]
    found = tuple(objective.texts(caption, spans, draw))
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
