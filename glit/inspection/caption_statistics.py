"""Statistics of published annotations and of files of captions, for ``glit stats --format``."""

from __future__ import annotations

from pathlib import Path

from glit.dataset.statistics import CaptionTally, Statistics
from glit.errors import InputError
from glit.inputs.published import read_annotations
from glit.inputs.user_captions import TEXT_KEYS, captions_in
from glit.models.tokenizer import TextTokenizer
from glit.runtime.prefetch import batched
from glit.text.sentences import make_splitter

_BATCH = 4096


def annotation_statistics(
    file: Path, kind: str, *, split: str | None, tokenizer: tuple[str, TextTokenizer] | None
) -> Statistics:
    """Return the statistics of published annotations, whose images need not be here, or of a file
    of captions.

    Args:
        file: as published; of kind ``captions``, JSON lines, CSV or Parquet.
        kind: one of the readers' formats, or ``captions``.
        split: which parts; see :func:`read_annotations`.
        tokenizer: name and tokenizer of the model to count tokens with.

    Raises:
        InputError: the file is not of that format, or has no caption.
    """
    if kind == "captions":
        texts = [text for text in captions_in(file) if text]
        images = len(texts)
    else:
        found = read_annotations(kind, file, images=None, split=split, need_images=False)
        texts, images = [text for image in found for text in image.captions], len(found)
    if not texts:
        raise InputError(f"{file}: no caption under {' or '.join(TEXT_KEYS)}")
    split_text = make_splitter("sentencex", "en")
    name, counting = tokenizer or ("", None)
    tally = CaptionTally(images=images)
    for batch in batched(texts, _BATCH):
        tally.texts(batch, (len(split_text(text)) for text in batch), counting)
    return tally.statistics(tokenizer=name)
