"""Split text into the character spans of its sentences.

What the libraries get wrong in English captions is repaired by a few rules
(docs/decisions/sentence-repairs.md); the bare dot stays as the papers have it.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from glit.errors import UserError
from glit.recipes.extras import require
from glit.text.languages import text_language
from glit.text.list_items import keep_list_markers
from glit.text.spans import Span, locate

Splitter = Callable[[str], list[Span]]

_UNUSUAL_SPACE = re.compile(r"[^\S\n ]")


def make_splitter(name: str, language: str) -> Splitter:
    """The splitter of a name: a function from text to the character spans of its sentences.

    A text that is without doubt in another language than ``language`` is split as one of its own.

    Raises:
        MissingExtraError: NLTK is not installed.
        UserError: NLTK's Punkt data is not on this machine.
    """
    if name == "dot":
        return split_at_dots
    assert name in ("sentencex", "punkt"), name
    make = _punkt if name == "punkt" else _sentencex
    asked = make(language)

    def split(text: str) -> list[Span]:
        own = text_language(text, language)
        found = (asked if own == language or name == "punkt" else _sentencex(own))(text)
        if own == "en":  # the rules know English words
            found = repair(text, found)
        return keep_list_markers(text, found)

    return split


def split_at_dots(text: str) -> list[Span]:
    """Split at every full stop, as the papers' scripts do.

    >>> split_at_dots("A cat. 1.5 m long.")
    [(0, 6), (7, 9), (9, 18)]
    """
    spans: list[Span] = []
    start = 0
    ends = [index + 1 for index, char in enumerate(text) if char == "."]
    for end in [*ends, len(text)]:
        piece = text[start:end]
        stripped = piece.strip()
        if stripped.strip("."):
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        start = end
    return spans


@cache
def _sentencex(language: str) -> Splitter:
    segment = importlib.import_module("sentencex").segment  # compiled, without types

    def split(text: str) -> list[Span]:
        # it panics on some unusual spaces; plain ones of the same length keep every span
        plain = _UNUSUAL_SPACE.sub(" ", text)
        return locate(segment(language, plain), plain)

    return split


def _punkt(language: str) -> Splitter:
    require("punkt", needed_for="split.splitter = 'punkt'")
    from nltk.tokenize.punkt import PunktTokenizer

    names = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian"}
    try:
        tokenizer = PunktTokenizer(names.get(language, language))
    except LookupError as error:
        raise UserError(
            "split.splitter = 'punkt': NLTK has no Punkt data here; run "
            "python -m nltk.downloader punkt_tab on a connected machine, or use 'sentencex'"
        ) from error
    return lambda text: _stripped(tokenizer.span_tokenize(text), text)


def _stripped(spans: Iterator[Span], text: str) -> list[Span]:
    result = []
    for start, end in spans:
        piece = text[start:end]
        left = start + len(piece) - len(piece.lstrip())
        right = start + len(piece.rstrip())
        if left < right:
            result.append((left, right))
    return result


# -- repairs of English ---------------------------------------------------------------------------

# Words that begin sentences; with a capital, before a small letter, they do little else.
_OPENERS = (
    "A|Above|Across|Adjacent|All|Along|An|Another|Around|As|At|Behind|Below|Beneath|Beside|"
    "Between|Beyond|Both|Directly|Each|From|He|Her|Here|His|In|Inside|It|Its|Just|Many|Most|"
    "Near|Next|On|One|Only|Other|Outside|Over|Part|She|Several|Some|That|The|Their|There|"
    "These|They|This|Those|Three|Throughout|To|Toward|Towards|Two|Under|Underneath|We|When|"
    "While|With|You"
)
_OPENING = re.compile(rf"""["“‘'(]*(?:{_OPENERS})(?:['’][a-z]+)?(?:,|\s+["“]?[a-z0-9])""")
_VERB = re.compile(r"[^.!?]{0,200}?\b(?:is|are|was|were|has|have|had|can)\b")
_GAP = re.compile(r"""["”»’')\].!?…](\s+)(?=["“«‘'(]?[A-Z])""")
_BREAK = re.compile(r"[^\s,;:]([^\S\n]*\n\s*)(?=[A-Z])")
_STOP = re.compile(r"""(?P<word>\w*)(?P<mark>["”»’')\]]?)[.!?…]+(?:\s?["”»’')\]])*$""")
_LOOK_BACK = 40
"""Characters before a gap in which its full stop and the word before that are looked for."""
_ADDRESS = re.compile(r"(?:com|co|uk|org|edu|gov)\b")
_REFERENCE = re.compile(r"[\[(]\d")
_LONGEST = 300
"""Characters of a quotation; a mark that is closed later than that meant something else."""
_MARK = re.compile(r'["“”„«»]')
_PARENTHESES = re.compile(rf"\([^()]{{1,{_LONGEST}}}\)")
_SINGLE_QUOTES = re.compile(rf"(?<!\w)['‘](?=\w)(?:[^'’]|['’](?=\w)){{1,{_LONGEST}}}['’](?!\w)")


def repair(text: str, spans: Sequence[Span]) -> list[Span]:
    """Correct a splitter's systematic errors in the sentence spans of an English text.

    A boundary is undone inside a quotation or parentheses, and where a sentence, a number or an
    address goes on. One is added at a full stop that the splitter passed over, after a quotation
    without a full stop, and at a line break, each only before what looks like the start of a
    sentence. A second time changes nothing.

    Args:
        text: the caption.
        spans: in order, no whitespace at their ends and nothing else between them.

    >>> repair("It is 4. 5 m high. “Main St.” This way.", [(0, 8), (9, 18), (19, 39)])
    [(0, 18), (19, 29), (30, 39)]
    """
    quotations = _quotations(text)
    closed = {end for _, end in quotations}
    whole = _united([*quotations, *_spans(_PARENTHESES, text)])
    joined: list[Span] = []
    for start, end in spans:
        if joined and (_inside(whole, start) or _goes_on(text, joined[-1][1], start, closed)):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    gaps = _gaps(text, {start for start, _ in joined}, whole, closed)
    return _cut(text, joined, gaps) if gaps else joined


def _goes_on(text: str, end: int, start: int, closed: set[int]) -> bool:
    """Return whether no sentence ends at ``end``, though another is said to begin at ``start``."""
    if text[end:start] not in ("", " "):
        return False
    if _REFERENCE.match(text, start) and text.endswith(" al.", 0, end):  # et al. [2004]
        return True
    if text[end - 1] == "]" and text[start].islower() and text[end - 2] not in ".!?":
        return True  # [3] shows
    if end in closed:  # “STOP!” is painted: the stop belongs to the quotation
        return text[start].islower()
    if text[end - 1] != ".":
        return False
    if text[start].isdigit():  # 4. 5 m, as published captions have been respaced
        return end > 1 and text[end - 2].isdigit()
    www = text[start].islower() and text.endswith("www.", 0, end)
    return bool(www or _ADDRESS.match(text, start))  # www. cars. com


def _gaps(text: str, starts: set[int], whole: list[Span], closed: set[int]) -> list[Span]:
    """The whitespace at sentence ends that the splitter passed over."""
    found: set[Span] = set()
    for match in _GAP.finditer(text):
        start, end = match.span(1)
        if end in starts or _inside(whole, end):
            continue
        opening = _OPENING.match(text, end)
        stop = _STOP.search(text, max(0, start - _LOOK_BACK), start)
        if stop:
            # before any other word, which may be a name, the stop must not be an abbreviation's
            if opening or stop["mark"] or re.fullmatch("[a-z]{3,}", stop["word"]):
                found.add((start, end))
        elif opening and start in closed and _VERB.match(text, end):  # reads “STOP” To the left is
            found.add((start, end))
    for match in _BREAK.finditer(text) if "\n" in text else ():
        start, end = match.span(1)
        if end not in starts and not _inside(whole, end) and _OPENING.match(text, end):
            found.add((start, end))
    if not found:
        return []
    single = _united(_spans(_SINGLE_QUOTES, text))
    return sorted(gap for gap in found if not _inside(single, gap[1]))


def _cut(text: str, spans: list[Span], gaps: list[Span]) -> list[Span]:
    result: list[Span] = []
    waiting = iter([*gaps, (len(text), len(text))])
    gap = next(waiting)
    for start, end in spans:
        while gap[1] < end:
            if any(map(str.isalnum, text[start : gap[0]])):
                result.append((start, gap[0]))
                start = gap[1]
            gap = next(waiting)
        result.append((start, end))
    return result


def _quotations(text: str) -> list[Span]:
    """Pair each opening mark with the closing one after it, whatever their shapes; skip others.

    A straight mark opens or closes by the whitespace around it, and where that does not tell, it
    closes what is open. So a mark that is never closed takes nothing with it.
    """
    result: list[Span] = []
    opened = None
    for match in _MARK.finditer(text):
        index = match.start()
        free_left = index == 0 or text[index - 1].isspace() or text[index - 1] in "([{"
        free_right = text[index + 1 : index + 2].strip(" \n.,;:!?)]}") == ""
        if match[0] in "“„«":
            closes = False
        elif match[0] in "”»":
            closes = True
        elif free_left != free_right:
            closes = free_right
        else:
            closes = opened is not None
        if not closes:
            opened = index
        elif opened is not None:
            if index - opened <= _LONGEST:
                result.append((opened, index + 1))
            opened = None
    return result


def quoted(text: str) -> list[Span]:
    """The quotations of a text with their marks, double or single, in order.

    >>> quoted("A sign, “Stop”, and 'Go' on the dog's bed")
    [(8, 14), (20, 24)]
    """
    return _united([*_quotations(text), *_spans(_SINGLE_QUOTES, text)])


def _spans(pattern: re.Pattern[str], text: str) -> list[Span]:
    return [match.span() for match in pattern.finditer(text)]


def _united(spans: Iterable[Span]) -> list[Span]:
    """The same ground in spans that do not overlap, in order."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def _inside(spans: list[Span], position: int) -> bool:
    """Return whether a position lies within one of ordered spans, not at its start."""
    index = bisect(spans, (position,)) - 1
    return index >= 0 and position < spans[index][1]
