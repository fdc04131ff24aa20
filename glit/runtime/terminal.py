"""Escape control characters in text that goes to a terminal."""

from __future__ import annotations

import unicodedata
from typing import Any

import rich.console
from rich.text import Text

_KEPT = "\n\t"
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control characters, formats (among them those that turn the direction of writing), surrogates and
separators of lines."""
_HARMLESS = "\u00ad\u200c\u200d"
"""Soft hyphen; the joiners of Persian, of Indian scripts and of emoji."""


def visible(text: str) -> str:
    r"""A text whose control characters are written out, but for line ends and tabs.

    >>> print(visible("a\x1b[2Jb\r"), visible("\u202etxt.exe\udcff"))
    a\x1b[2Jb\x0d \u202etxt.exe\udcff
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: str) -> str:
    r"""A text with all control characters written out, line ends and tabs too.

    >>> print(one_line("a\nb"))
    a\x0ab
    """
    return "".join(f"\\x{ord(c):02x}" if c in _KEPT else c for c in visible(text))


def _visible(character: str) -> str:
    if character in _KEPT or character in _HARMLESS:
        return character
    if unicodedata.category(character) not in _UNSAFE:
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class Console(rich.console.Console):
    """Rich's console for untrusted text: no markup, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)
