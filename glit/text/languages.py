"""Find texts in another language than the one that was asked for, by script and stop words.

It says yes only where there is no doubt: short texts pass, and so do languages that it does not
know.
"""

from __future__ import annotations

import re
from collections import Counter

SCRIPTS: dict[str, re.Pattern[str]] = {
    "latin": re.compile(r"[A-Za-z\u00c0-\u024f]+"),
    "cyrillic": re.compile(r"[\u0400-\u052f]+"),
    "greek": re.compile(r"[\u0370-\u03ff]+"),
    "chinese": re.compile(r"[\u3400-\u9fff]"),  # no spaces: a character counts as a word
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "hangul": re.compile(r"[\uac00-\ud7af]+"),
    "arabic": re.compile(r"[\u0600-\u06ff]+"),
    "hebrew": re.compile(r"[\u0590-\u05ff]+"),
    "devanagari": re.compile(r"[\u0900-\u097f]+"),
    "thai": re.compile(r"[\u0e00-\u0e7f]"),
}
_OTHERS = {
    "ru": ("cyrillic",), "uk": ("cyrillic",), "bg": ("cyrillic",), "el": ("greek",),
    "zh": ("chinese",), "ja": ("chinese", "kana"), "ko": ("hangul", "chinese"), "ar": ("arabic",),
    "fa": ("arabic",), "he": ("hebrew",), "hi": ("devanagari",), "th": ("thai",),
}  # fmt: skip
"""By language: its scripts. Those of :data:`STOP_WORDS` are written in Latin letters."""
STOP_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "en": "the and of is with are to at it there has from by this that its which as behind "
        "between on in an a two one left right side some while he she his her their be",
        "de": "der die das und ist ein eine einen einem einer mit auf im den dem des von zu sind "
        "sich nicht auch vor hinter zwischen links rechts über sie es ihr seine aus am zur",
        "fr": "le la les et est un une des du de dans avec sur au aux en qui par pour il elle sont "
        "derrière devant gauche droite cette ses son deux plus entre se",
        "es": "el la los las y es un una de del en con al que por para se su sus está están hay "
        "detrás izquierda derecha como dos entre más sobre",
        "it": "il lo la gli le e è un una di del della dei delle in con su al alla che per si sono "
        "dietro sinistra destra questa due tra nel nella da",
        "pt": "o a os as e é um uma de do da dos das em no na com ao que por para se está são há "
        "atrás esquerda direita dois duas entre mais sobre",
        "nl": "de het een en is van op met in te zijn aan er die dat naar achter tussen links "
        "rechts ook niet voor uit heeft twee",
    }.items()
}
_WORD = re.compile(r"[^\W\d_]+")
_FEWEST_FOREIGN, _FOREIGN_SHARE = 8, 0.3
"""So many words in other scripts, and this share of all."""
_FEWEST_WORDS, _STOP_SHARE, _CLEARLY = 12, 0.15, 3
"""Texts with fewer words pass; another language's stop words are this share of all, and so many
times those of the language asked."""


def is_other_language(text: str, asked: str) -> bool:
    """Return whether a text is without doubt in another language than the one asked for.

    Args:
        text: without quotations, as signs may be in any language.
        asked: the language's code, such as ``en`` or ``pt-BR``.

    >>> is_other_language("Das ist ein Hund, der mit einem Ball auf der Wiese spielt", "en")
    True
    """
    language = re.split(r"[-_]", asked.lower())[0]
    own = _OTHERS.get(language) or (("latin",) if language in STOP_WORDS else ())
    if not own:
        return False
    written = {name: len(pattern.findall(text)) for name, pattern in SCRIPTS.items()}
    foreign = sum(number for name, number in written.items() if name not in own)
    if foreign >= _FEWEST_FOREIGN and foreign >= _FOREIGN_SHARE * sum(written.values()):
        return True
    return language in STOP_WORDS and bool(_other_words(text, language))


_OWN_SCRIPTS = (
    ("hy", re.compile(r"[\u0530-\u058f]")),
    ("uk", re.compile(r"[\u0404\u0406\u0407\u0454\u0456\u0457\u0490\u0491]")),
    ("ru", re.compile(r"[\u0400-\u052f]")),
    ("el", re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")),
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("zh", re.compile(r"[\u3400-\u9fff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("fa", re.compile(r"[\u067e\u0686\u0698\u06af]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("my", re.compile(r"[\u1000-\u109f]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)
"""Languages by letters that only they, or the languages after them, are written in."""
_NO_LATIN = re.compile(r"[\u0370-\u10ff\u1200-\u1dbf\u1f00-\u1fff\u3040-\ud7af]")
_GLANCE = 300
"""Characters of a text whose stop words are enough to say that it is in the language asked."""
_LETTER = re.compile(r"[^\W\d_]")


def text_language(text: str, asked: str) -> str:
    """The language to split a text in: the one that was asked for, if the text fits it.

    A text of which more than half of the letters are of another script is of a language of that
    script; one with the stop words of another language is of that one.

    >>> text_language("Собака сидит. Кот спит.", "en"), text_language("A dog sits.", "en")
    ('ru', 'en')
    """
    if not text.isascii() and asked not in _OTHERS and _NO_LATIN.search(text):
        written = len(_NO_LATIN.findall(text))
        if 2 * written > len(_LETTER.findall(text)) and asked not in dict(_OWN_SCRIPTS):
            return next((name for name, own in _OWN_SCRIPTS if own.search(text)), asked)
    if asked not in STOP_WORDS:
        return asked
    first = text[:_GLANCE].lower().split()
    own = sum(map(STOP_WORDS[asked].__contains__, first))
    return asked if _CLEARLY * own > len(first) else _other_words(text, asked) or asked


def _other_words(text: str, language: str) -> str:
    """The language whose stop words a text has, if it is without doubt another one; else empty."""
    found = _WORD.findall(text.lower())
    total, own = len(found), STOP_WORDS[language]
    if total < _FEWEST_WORDS or _CLEARLY * sum(word in own for word in found) > total:
        return ""  # no other language can have so many more
    words = Counter(found)
    hits = {
        name: sum(words[word] for word in known if word in words)
        for name, known in STOP_WORDS.items()
    }
    best = max(hits, key=lambda name: hits[name])
    clear = hits[best] >= max(_STOP_SHARE * total, _CLEARLY * max(hits[language], 1))
    return best if clear else ""
