"""Find faults of a caption that a model wrote: nothing said, refusals, loops, other languages.

Their limits and what they were measured on: docs/decisions/caption-checks.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from glit.text.languages import is_other_language
from glit.text.sentences import quoted

LONGEST_RUN = 12
"""Words of a phrase that is looked for right after itself."""
_FEWEST_TIMES, _FEWEST_WORDS, _FEWEST_SINGLE, _FEWEST_IN_ALL = 4, 10, 6, 20
"""A loop says its phrase so many times, in so many words; of a single word so many. With quotations
and numbers, where songs, signs and scores repeat, it has this many words."""
_FEWEST_COPIES, _COPIED_SHARE = 3, 0.25
"""So many sentences said before, with this share of all words, are a loop."""
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\W_]+?(?=[\W_\u3040-\u9fff]|$)")
_PART = re.compile(r"[\n.!?;。！？]+")
_LETTERS = re.compile(r"(?=\w)(.{1,8}?)\1{19}")

_MARKS = re.compile(r"([^\w\s])(?:\s*\1){7,}\s*$|([^\w\s])(?:\s*\2){23,}|(?:\s*\n){10}|\s{40}")

_FIRST = re.compile(
    r"^\W*(i['’]?m sorry|i am sorry|sorry\b|i apologi[sz]e|unfortunately,? i\b|as an ai\b"
    r"|i (can(['’]|no)t|can not|could not|am unable|am not able|['’]m unable|won['’]t))",
    re.IGNORECASE,
)
_CANNOT = r"(?:can(?:['’]|no)t|can not|could not|couldn['’]t|won['’]t)"
_UNABLE = r"(?:i am|i['’]m) (?:not able|unable) to"
_ANSWER = (
    r"(?:describe|assist|help|provide|comply|fulfill?|process|analy[sz]e|access|generate|answer|"
    r"continue|identify|view|see|tell you|determine)\b"
)
_ANYWHERE = re.compile(
    r"\bas an? (?:\w+ )?(?:ai|artificial intelligence|language model)\b(?= (?:language|model|"
    r"assistant)\b|[,;:]| i\b)"
    r"|\bas an? (?:large )?language model\b|\bi(?: am|['’]m) (?:just |only )?an? (?:large |ai )?"
    r"(?:language model|ai assistant)\b"
    rf"|(?:^|[.!?\n]\s*)\W*(?:but |however,? |unfortunately,? |sorry,? (?:but )?)?(?:i {_CANNOT} "
    rf"{_ANSWER}|{_UNABLE} {_ANSWER})"
    r"|(?:^|[.!?\n]\s*)\W*(?:i['’]m|i am|we['’]re) (?:very |really |so )?sorry,? (?:but|i|that i|"
    r"as)\b|(?:^|[.!?\n]\s*)\W*i apologi[sz]e\b|(?:^|[.!?\n]\s*)\W*unfortunately,? i\b",
    re.IGNORECASE,
)
_PICTURE = r"(?:image|picture|photo(?:graph)?|attachment)s?\b"
_UNSEEN = re.compile(
    rf"\b(?:i (?:do not|don['’]t|did not|didn['’]t|{_CANNOT})|{_UNABLE}) (?:\w+ly )?(?:see|view|"
    r"find|access|open|load|display|decode|receive|process) (?:any|an?|the|this|your|that)? ?"
    rf"(?:\w+ ){{0,2}}{_PICTURE}"
    rf"|\b(?:the|your|this|any) {_PICTURE} (?:you \w+ )?(?:did|has|have|was|were|is|does|could)"
    r"(?: not|n['’]t) (?:\w+ ){0,4}(?:load|"
    r"attach|upload|provided|render|display|received|come through|visible to me)"
    rf"|{_PICTURE} (?:you \w+ )?(?:failed to|cannot be|could not be) (?:load|render|display|open)"
    rf"|\bwithout (?:seeing|viewing|access to|being able to (?:see|view)) (?:the|an?|any|your) "
    rf"(?:\w+ )?{_PICTURE}"
    rf"|\bno {_PICTURE} (?:(?:was|were|has been|is) )?(?:provided|attached|uploaded|included|"
    r"received)\b"
    rf"|\b(?:which|that) (?:i {_CANNOT}|{_UNABLE}) (?:decode|view|see|open|access)\b"
    rf"|\bi (?:do not|don['’]t) have (?:access to|the ability to \w+) (?:any |the )?{_PICTURE}"
    rf"|\bplease (?:provide|upload|share|attach|send|re-?upload) (?:me )?(?:with )?"
    rf"(?:the|an?|your) (?:\w+ )?{_PICTURE}"
    r"|\bi(?: am|['’]m) (?:only |just )?an? text[- ](?:based|only)\b",
    re.IGNORECASE,
)
_SIGN = re.compile(r"^\W*sorry,? we\b", re.IGNORECASE)


def caption_fault(text: str, *, language: str = "en") -> str | None:
    """The drop reason of a model's caption that cannot be used, None for a good one.

    Args:
        text: the caption.
        language: the code of the one that was asked for.
    """
    if not any(map(str.isalnum, text)):
        return "empty_caption"
    own = _unquoted(text)
    if is_refusal(own):
        return "refusal"
    if (
        repeats_marks(text)
        or is_looping(text)
        or repeats_locally(own)
        or has_long_loop(text)
        or repeats_sentences(own)
    ):
        return "looping"
    return "wrong_language" if is_other_language(own, language) else None


def _unquoted(text: str) -> str:
    """The text without what it quotes; all of it where it is nothing but a quotation."""
    kept, end = [], 0
    for start, stop in quoted(text):
        kept.append(text[end:start])
        end = stop
    own = " ″ ".join([*kept, text[end:]])
    return own if any(map(str.isalnum, own)) else text


def is_refusal(text: str) -> bool:
    """Return whether a model declines, or speaks of itself, at the beginning or anywhere.

    >>> is_refusal("A cat. As an AI language model, I see no more."), is_refusal("A sorry sight.")
    (True, False)
    """
    if _FIRST.match(text) and not _SIGN.match(text):
        return True
    return bool(_ANYWHERE.search(text)) or says_unseen(text)


def says_unseen(text: str) -> bool:
    """Return whether a model says that it was given no image, or could not read it.

    >>> says_unseen("It seems the image did not load."), says_unseen("No image hangs on the wall.")
    (True, False)
    """
    return bool(_UNSEEN.search(_unquoted(text)))


def is_looping(text: str) -> bool:
    """Return whether a text repeats itself: fewer than half of its four-word runs are distinct.

    Texts under 24 words pass, unless in a word of over 100 letters the four-letter runs repeat so.
    """
    words = re.split(r"[\W_]+", text)
    if any(len(word) > 100 and _repeats(word) for word in words):
        return True
    return len(words) >= 24 and _repeats(words)


def _repeats(items: Sequence[str]) -> bool:
    runs = list(zip(items, items[1:], items[2:], items[3:], strict=False))
    return len(set(runs)) < len(runs) / 2


def words_of(text: str) -> list[str]:
    """Its words in small letters; of writing without spaces its characters."""
    return _WORDS.findall(text.lower())


def runs(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Every phrase that stands right after itself: its number of words, and that of the whole run.

    >>> list(runs("a very very large cat".split()))
    [(1, 2)]
    """
    for size in range(1, min(LONGEST_RUN, len(words) // 2) + 1):
        same = 0
        for one, other in zip([*words[:-size], ""], [*words[size:], None], strict=True):
            if one == other:
                same += 1
            elif same:
                if same >= size:
                    yield size, same + size
                same = 0


def repeats_locally(text: str) -> bool:
    """Return whether a phrase is said many times in a row, somewhere in a text without quotations.

    >>> repeats_locally("A very very large, blue, blue, and blue cat"), repeats_locally("five " * 7)
    (False, True)
    """
    words = words_of(text)
    unlike = [f"{at} {word}" if word.isdigit() else word for at, word in enumerate(words)]
    return bool(_LETTERS.search(text)) or any(
        length >= (_FEWEST_SINGLE if size == 1 else max(_FEWEST_TIMES * size, _FEWEST_WORDS))
        for size, length in runs(unlike)
    )


def repeats_marks(text: str) -> bool:
    """Return whether one mark or empty lines are repeated without end, or at the end.

    >>> repeats_marks("A dog." + " !" * 9), repeats_marks("A dog" + "\\n" * 12)
    (True, True)
    """
    return bool(_MARKS.search(text))


def has_long_loop(text: str) -> bool:
    """The same of a text with its quotations, for longer runs."""
    return any(
        length >= max(_FEWEST_TIMES * size, _FEWEST_IN_ALL) for size, length in runs(words_of(text))
    )


def repeats_sentences(text: str) -> bool:
    """Return whether sentences or lines of three words or more were said before, too many of them.

    >>> repeats_sentences("A cat sits. The sky is blue. The sky is blue.")
    False
    """
    parts = [part for part in (tuple(words_of(p)) for p in _PART.split(text)) if len(part) >= 3]
    counts = Counter(parts)
    copies = [part for part, number in counts.items() for _ in range(number - 1)]
    said = sum(map(len, parts))
    return len(copies) >= _FEWEST_COPIES and sum(map(len, copies)) >= _COPIED_SHARE * said
