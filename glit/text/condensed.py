"""Find faults of a short caption that a language model wrote from a long one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

from glit.text.languages import STOP_WORDS
from glit.text.lexicon import canonical

_CLAIMS = (
    "left right side two one behind between links rechts zwei hinter vor zwischen nicht gauche "
    "droite deux derrière devant entre izquierda derecha dos detrás sinistra destra due dietro tra "
    "esquerda direita dois duas atrás achter tussen twee niet"
)
"""Stop words with content, such as places and counts, of all languages."""
_MORE_FREE = (
    "image photo photograph picture scene show shows showing depict depicts see seen visible view "
    "or but for into was were be been being these those who whose them"
)
_FREE = {code: words - frozenset(_CLAIMS.split()) for code, words in STOP_WORDS.items()}
_FREE["en"] |= frozenset(_MORE_FREE.split())
"""By language: words without content, which are not compared."""
_STEMMED = {
    "ar": "arabic", "da": "danish", "de": "german", "en": "english", "es": "spanish",
    "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish",
}  # fmt: skip
"""Languages of NLTK's Snowball stemmers."""


def condensed_text(answer: str) -> str:
    """An answer in one line (NFC), without quotation marks around all of it.

    >>> condensed_text(' "A red car stands\\nby a house." ')
    'A red car stands by a house.'
    """
    text = " ".join(unicodedata.normalize("NFC", answer).split())
    marks = {'"': '"', "“": "”", "«": "»", "„": "“"}
    if len(text) > 1 and marks.get(text[0]) == text[-1] and not {*marks} & {*text[1:-1]}:
        return text[1:-1].strip()
    return text


def invented_words(short: str, long: str, language: str) -> list[str]:
    """The words of a short caption that its long one does not have, in order.

    Inflections count as the same word, and so do English words of one meaning in
    :mod:`glit.text.lexicon`. Words without content are left out. It does not see words of the long
    caption put together in a wrong way.

    Args:
        short: one line.
        long: what it was written from.
        language: of both, as ``en`` or ``pt-BR``. Languages that have no stemmer are compared
            letter by letter.

    >>> invented_words("Two big dogs are running.", "Two large dogs run over a lawn.", "en")
    []
    >>> invented_words("A dog with a ball", "A dog lies on the lawn.", "en")
    ['ball']
    """
    code = re.split(r"[-_]", language.lower())[0]
    stem = _stemmer(code)
    known = {stem(word) for word in _words(long, code)}
    return [word for word in dict.fromkeys(_words(short, code)) if stem(word) not in known]


def _words(text: str, code: str) -> list[str]:
    found = [re.sub("['’]s$", "", word) for word in re.findall(r"\w+(?:['’]\w+)*", text.lower())]
    free = _FREE.get(code, frozenset())
    return [word for word in found if word not in free]


@cache
def _stemmer(code: str) -> Callable[[str], str]:
    """The stem of a word, kept for all words that were asked."""
    if code not in _STEMMED:
        return str.casefold
    from nltk.stem import SnowballStemmer

    stem = SnowballStemmer(_STEMMED[code]).stem
    if code != "en":
        return cache(stem)

    def of_class(word: str) -> str:
        known = canonical(word)
        return stem(canonical(stem(word)) if known == word else known)

    return cache(of_class)
