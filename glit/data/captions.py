"""Several captions of an image, each of a kind: ``long``, ``short``, or a name of the user's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from glit.data.limits import CAPTION_CHARS
from glit.data.records import Caption, Drop, Sample
from glit.text.spans import CleanText

LONG, SHORT = "long", "short"
"""A caption that is brought without a kind is a long one."""
FIRST_SENTENCE = "first_sentence"
"""The source of a short caption that is the first sentence of the long one."""
KIND_RULE = "letters, digits, - and _, at most 64"
_KIND = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_kind(name: str) -> bool:
    """Return whether a kind of captions can have this name.

    >>> is_kind("short"), is_kind("caption-2"), is_kind("two words"), is_kind("")
    (True, True, False, False)
    """
    return _KIND.fullmatch(name) is not None


def are_kinds(names: Sequence[str]) -> bool:
    """Return whether all are valid names of kinds, and none stands twice."""
    return all(map(is_kind, names)) and len({*names}) == len(names)


def text_of_kind(captions: Iterable[Mapping[str, Any]] | None, kind: str) -> str | None:
    """The first caption of a kind in a value of the column ``captions``; None for none."""
    return next((each["text"] for each in captions or () if each["kind"] == kind), None)


def with_provided(
    sample: Sample, texts: str | Mapping[str, str], *, name: str, strip: bool = False
) -> Sample | Drop:
    """The sample with captions of the user, NFC.

    Args:
        sample: without a caption.
        texts: its one caption, or several by kind, of which the first becomes ``caption`` and
            those without words are left out.
        name: of what the user brought them in.
        strip: whether whitespace around them goes.
    """
    by_kind = {LONG: texts} if isinstance(texts, str) else texts
    if fault := too_long(by_kind.values()):
        return fault
    found = {kind: CleanText(text, strip=strip).text for kind, text in by_kind.items()}
    text = next(iter(found.values()))
    if not has_words(text):
        return Drop(reason="empty_caption", message="the caption has no words")
    caption = Caption(text=text, kind="provided", model=name, revision="", prompt_sha256="")
    sample = dataclasses.replace(sample, caption=caption)
    if isinstance(texts, str):
        return sample
    kept = [
        {"kind": kind, "text": each, "source": caption.kind}
        for kind, each in found.items()
        if has_words(each)
    ]
    return dataclasses.replace(sample, extra={**sample.extra, "captions": kept})


def too_long(texts: Iterable[str]) -> Drop | None:
    """A drop where a caption has more than ``CAPTION_CHARS``, which no model reads and whose
    sentences take minutes to score."""
    longest = max(map(len, texts), default=0)
    if longest <= CAPTION_CHARS:
        return None
    message = f"a caption of more than {CAPTION_CHARS} characters, at most that many are taken"
    return Drop(reason="too_long", message=message)


def with_written(sample: Sample, outcome: Sample | Drop, kind: str) -> Sample | Drop:
    """The sample with one more caption that a model wrote; its first one is ``caption``.

    Args:
        sample: as it was.
        outcome: the sample with the new caption, or why there is none.
        kind: of the new caption.
    """
    if isinstance(outcome, Drop):
        message = f"{kind} caption: {outcome.message}"
        return dataclasses.replace(outcome, message=message)
    made = outcome.caption
    assert made is not None
    several = [
        *sample.extra.get("captions", ()),
        {"kind": kind, "text": made.text, "source": made.kind},
    ]
    extra = {**sample.extra, "captions": several}
    return dataclasses.replace(sample, caption=sample.caption or made, extra=extra)


def with_short(sample: Sample, splitter: Callable[[str], list[tuple[int, int]]]) -> Sample:
    """The sample with the first sentence of its caption as a short one; one that it has stays.

    Args:
        sample: with a caption.
        splitter: character spans of a text's sentences.
    """
    caption = sample.caption
    assert caption is not None
    sentences = (caption.text[start:end] for start, end in splitter(caption.text))
    text = next(filter(has_words, sentences), caption.text)
    return captions_with(sample, SHORT, text, FIRST_SENTENCE)


def captions_with(sample: Sample, kind: str, text: str, source: str) -> Sample:
    """The sample with one more caption, unless it has one of that kind; its ``caption`` stays."""
    caption = sample.caption
    assert caption is not None
    own = [{"kind": LONG, "text": caption.text, "source": caption.kind}]
    several = [*sample.extra.get("captions", own)]
    if text_of_kind(several, kind) is None:
        several.append({"kind": kind, "text": text, "source": source})
    return dataclasses.replace(sample, extra={**sample.extra, "captions": several})


def edited_captions(row: Mapping[str, Any], caption: str) -> dict[str, list[dict[str, Any]]]:
    """The column ``captions`` of a row whose caption was edited; nothing where there is none."""
    found = row.get("captions") or []
    if not all(isinstance(each, dict) and "text" in each for each in found):
        return {}
    texts = [each["text"] for each in found]
    if row["caption"] not in texts:
        return {}
    at = texts.index(row["caption"])  # a model may say the same for another kind
    return {"captions": [*found[:at], {**found[at], "text": caption}, *found[at + 1 :]]}


def has_words(text: str) -> bool:
    """Return whether there is a letter or a digit in a text."""
    return any(map(str.isalnum, text))
