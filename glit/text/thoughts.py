"""Remove what stands around an answer and is no part of it: thoughts, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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


CAPTION = ("caption",)
"""The keys of a structured caption."""
_CHARACTER = r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING = re.compile(
    rf'\s*\{{\s*"caption"\s*:\s*"((?:[^"\\]|{_ESCAPE})*)(?:"|(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?$)'
)
"""Up to the closing mark, or to where the text was cut, maybe within an escape."""


Keys = Sequence[str] | Mapping[str, Sequence[str] | int]
"""The keys of a JSON object of texts; a mapping says which texts are allowed under each key, or
how many characters they may have."""


def json_schema(keys: Keys) -> dict[str, Any]:
    """The JSON schema of an answer with a text under each key.

    >>> json_schema({"answer": "AB", "word": 40})["properties"]["answer"]
    {'type': 'string', 'enum': ['A', 'B']}
    """
    return {
        "type": "object",
        "properties": {key: {"type": "string", **_schema(keys, key)} for key in keys},
        "required": [*keys],
        "additionalProperties": False,
    }


def json_pattern(keys: Keys) -> str:
    """The same as a regular expression, without blanks, which a schema allows without end."""
    return (
        r"\{" + ", ".join(rf'"{re.escape(key)}": "{_pattern(keys, key)}"' for key in keys) + r"\}"
    )


def _schema(keys: Keys, key: str) -> dict[str, Any]:
    limit = keys[key] if isinstance(keys, Mapping) else None
    if isinstance(limit, int):
        return {"minLength": 1, "maxLength": limit}
    return {} if limit is None else {"enum": [*limit]}


def _pattern(keys: Keys, key: str) -> str:
    limit = keys[key] if isinstance(keys, Mapping) else None
    if isinstance(limit, int):
        return rf"{_CHARACTER}{{1,{limit}}}"
    return rf"{_CHARACTER}+" if limit is None else rf"(?:{'|'.join(map(re.escape, limit))})"


def texts_in_json(text: str) -> dict[str, str]:
    """The texts of a structured answer, by key; none where it is no JSON object.

    Thoughts before it and remarks around it are left out, and so are values that are no text.

    >>> texts_in_json('<think>A {</think> Sure: {"negation": "No dog runs.", "count": 2}')
    {'negation': 'No dog runs.'}
    >>> texts_in_json('{"negation": "No do')
    {}
    """
    answer = without_thoughts(text)
    start, end = answer.find("{"), answer.rfind("}") + 1
    try:
        found = json.loads(answer[start:end], strict=False) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def caption_in_json(text: str) -> str | None:
    """The caption of a structured answer, also of one that the token limit cut; None for no JSON.

    >>> caption_in_json('{"caption": "A sign says \\\\"Go\\\\"."}')
    'A sign says "Go".'
    >>> caption_in_json('{"caption": "A dog. A ca'), caption_in_json("A dog.")
    ('A dog. A ca', None)
    """
    found = _STRING.match(text)
    return None if found is None else json.loads(f'"{found[1]}"', strict=False)


def plain_answer(text: str, *, structured: bool) -> str | None:
    """The answer itself: without thoughts, and taken out of its JSON where it is structured.

    Args:
        text: as the model wrote it.
        structured: whether JSON was asked for; None is returned where there is none.
    """
    answer = without_thoughts(text)
    return caption_in_json(answer) if structured else answer
