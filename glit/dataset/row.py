"""A row of a dataset as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from glit.data.records import Caption, Pair, Region, Scores, Sentence
from glit.data.schema import CAPTION, CAPTIONS, GROUNDING, MASK, PHRASE
from glit.errors import DatasetError
from glit.images import Pixels, decode


def check_size(pixels: Pixels, *, width: int, height: int, name: str) -> None:
    """Check that an image has the size of its row's boxes.

    Raises:
        DatasetError: it has another.
    """
    if pixels.shape[:2] != (height, width):
        raise DatasetError(
            f"image {name} has {pixels.shape[1]}x{pixels.shape[0]} pixels, its row says "
            f"{width}x{height}; run 'glit verify' and repair the dataset"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """An image with its caption, S sentences, R regions, similarities and pairs."""

    sample_id: str
    """SHA-256 of the image file's bytes, hex."""
    source_path: str
    """Path relative to the ingested folder."""
    width: int
    """Pixels, after EXIF orientation; all boxes refer to this frame."""
    height: int
    """Pixels, after EXIF orientation."""
    image: bytes | None
    """The encoded image file; None if images were not requested."""
    caption: Caption
    sentences: tuple[Sentence, ...]
    regions: tuple[Region, ...]
    similarity: Float[np.ndarray, "S R"]
    """CLIP cosines of sentences and regions; 1 or 0 for pairs read from files."""
    image_similarity: Float[np.ndarray, " S"] | None
    """CLIP cosines of the sentences and the whole image; None in datasets of captions alone."""
    phrase_similarity: Float[np.ndarray, "S R"] | None
    """CLIP cosines of the sentences' head phrases and regions; None unless ``score.phrases``."""
    agreement: Float[np.ndarray, "S R"] | None
    """The grounder's confidence in the head phrases; None unless ``ground.enabled``."""
    pairs: tuple[Pair, ...]
    """Best pair first."""
    extra: Mapping[str, Any]
    """Values of columns that further stages added, by name."""

    def pixels(self) -> Pixels:
        """The decoded image, uint8 RGB [height, width, 3], upright.

        Raises:
            DatasetError: images were not requested, or the image has another size than the row.
            ImageError: the file is damaged.
        """
        pixels = decode(self.encoded())
        check_size(pixels, width=self.width, height=self.height, name=self.source_path)
        return pixels

    def encoded(self) -> bytes:
        """The encoded image file.

        Raises:
            DatasetError: images were not requested.
        """
        if self.image is None:
            raise DatasetError(f"{self.source_path}: read without its image; ask for images")
        return self.image

    @property
    def scores(self) -> Scores:
        """The input of pairing rules.

        Raises:
            DatasetError: the dataset is of captions alone.
        """
        if self.image_similarity is None:
            raise DatasetError(
                f"{self.source_path}: a dataset of captions alone holds no similarities"
            )
        return Scores(
            similarity=self.similarity,
            image_similarity=self.image_similarity,
            phrase_similarity=self.phrase_similarity,
            agreement=self.agreement,
        )


def masks_of(row: Row) -> dict[int, str]:
    """By region the mask that is kept of it: COCO's compressed run lengths, at the image's size."""
    masks = row.extra.get("masks")
    ours = isinstance(masks, list) and all(
        isinstance(each, dict) and [*each] == MASK.names for each in masks
    )
    return {each["region"]: each["counts"] for each in masks or ()} if ours else {}


def captions_of(row: Row) -> list[dict[str, str]]:
    """Its captions of all kinds (kind, text, source); none where images have one."""
    found = row.extra.get(CAPTIONS[0])
    ours = isinstance(found, list) and all(
        isinstance(each, dict) and [*each] == CAPTION.names for each in found
    )
    return found if ours and isinstance(found, list) else []


def is_grounded(row: Row) -> bool:
    """Return whether a grounder was asked for the phrases of the dataset that a row is from.

    Columns of these names and of another type are those of somebody's own stage.
    """
    phrases, groundings = (row.extra.get(name) for name in ("phrases", "groundings"))
    if not (isinstance(phrases, list) and isinstance(groundings, list)):
        return False
    fields = ((phrases, PHRASE.names), (groundings, GROUNDING.names))
    return all(isinstance(e, dict) and [*e] == names for some, names in fields for e in some)
