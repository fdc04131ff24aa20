"""The kinds of faults that an audit looks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault."""

    severity: Severity
    """``error`` if training on such an item is wrong for certain, else ``warning``."""
    sentence: str
    of: str
    """What is counted: ``images``, ``captions``, ``texts``, ``boxes``."""


def _error(sentence: str, of: str = "images") -> FaultKind:
    return FaultKind(severity="error", sentence=sentence, of=of)


def _warning(sentence: str, of: str = "images") -> FaultKind:
    return FaultKind(severity="warning", sentence=sentence, of=of)


KINDS: dict[str, FaultKind] = {
    "unreadable": _error("An entry or a file cannot be read in its format."),
    "span-words": _error("A span does not give its words.", "texts"),
    "span-in-word": _warning("A span begins or ends inside a word.", "texts"),
    "token-span": _error("A token span does not give the words of its sentence.", "texts"),
    "text-outside": _error("A sentence or phrase is not in its caption.", "texts"),
    "box-outside": _error("A box leaves its picture.", "boxes"),
    "box-empty": _error("A box is empty, turned inside out or not finite.", "boxes"),
    "box-units": _error("Boxes are in other units than the format's: shares, thousandths or "
                        "pixels."),
    "box-corners": _error("Boxes are two corners where a corner and a size are due, or the other "
                          "way round."),
    "stated-size": _warning("The boxes are in a picture of another size than the file."),
    "stated-turned": _warning("The boxes are in the picture before its EXIF orientation."),
    "stated-shape": _error("The boxes are in a picture of another shape than the file."),
    "picture-missing": _error("No picture has this name."),
    "name-unsafe": _error("A file name leads out of its folder or has control characters."),
    "name-unportable": _warning("A file name cannot be stored on every system."),
    "name-clash": _warning("File names differ in case or Unicode form alone."),
    "picture-damaged": _error("A picture cannot be decoded."),
    "picture-format": _warning("A picture is of a format that glit does not decode."),
    "picture-small": _warning("A picture has a side of fewer than 32 pixels."),
    "picture-blank": _warning("A picture is of one colour, once its transparency is over white."),
    "picture-location": _warning("A picture says where it was taken."),
    "mining-prohibited": _warning("A picture itself forbids data mining or training."),
    "caption-empty": _error("An image has no caption, or one without words.", "captions"),
    "caption-looping": _error("A caption repeats itself.", "captions"),
    "caption-refusal": _error("A caption is a model's refusal.", "captions"),
    "caption-garbled": _error("A caption holds control tokens, marks, thoughts or further turns of "
                              "a model.", "captions"),
    "caption-language": _warning("A caption is in another language than the others.", "captions"),
    "caption-repeated": _warning("The same caption belongs to several images.", "captions"),
    "caption-near": _warning("Nearly the same caption belongs to several images.", "captions"),
    "caption-of-another": _warning("A caption fits other pictures as well as its own.", "captions"),
    "in-test-set": _error("An image is in the test set."),
}  # fmt: skip
"""By code. Codes are stable: scripts may compare them."""
