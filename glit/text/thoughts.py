"""What stands around an answer and is no part of it: thoughts, and JSON."""

from __future__ import annotations

import json
import re
from typing import Any

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


CAPTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"caption": {"type": "string"}},
    "required": ["caption"],
    "additionalProperties": False,
}
"""The JSON schema of a structured answer."""
CAPTION_PATTERN = r'\{"caption": "(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])+"\}'
"""The same as a regular expression, without blanks, which a schema allows without end."""
_STRING = re.compile(r'\s*\{\s*"caption"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)


def caption_in_json(text: str) -> str | None:
    """The caption of a structured answer, also of one that the token limit cut; None for no JSON.

    >>> caption_in_json('{"caption": "A sign says \\\\"Go\\\\"."}')
    'A sign says "Go".'
    >>> caption_in_json('{"caption": "A dog. A ca'), caption_in_json("A dog.")
    ('A dog. A ca', None)
    """
    found = _STRING.match(text)
    if found is None:
        return None
    try:
        return json.loads(f'"{found[1]}"', strict=False)
    except ValueError:  # cut within an escape
        cut = found[1].rpartition("\\")[0]
        return json.loads(f'"{cut}"', strict=False)
