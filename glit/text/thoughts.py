"""What a model thinks aloud before it answers, which is no part of the answer."""

from __future__ import annotations

import re

_ENDS = ("</think>", "</thinking>", "[/THINK]", "◁/think▷", "<channel|>")
_STARTS = ("<think>", "<thinking>", "[THINK]", "◁think▷", "<|channel>thought")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_START = re.compile(rf"\s*(?:{'|'.join(map(re.escape, _STARTS))})")


def without_thoughts(text: str) -> str:
    """The text after the last thought; empty where the token limit cut the thought itself.

    Templates may open the thought in the prompt, so that only its end is in the text.

    >>> without_thoughts("<think>A cat?</think> A cat."), without_thoughts("A cat? </think>Two.")
    (' A cat.', 'Two.')
    >>> without_thoughts("<think>Let me look"), without_thoughts("A cat.")
    ('', 'A cat.')
    """
    answer = _END.split(text)[-1]
    return "" if _START.match(answer) else answer
