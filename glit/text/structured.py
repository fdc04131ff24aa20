"""Schemas of JSON answers of models, and the texts of such answers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from glit.text.answers import CleanAnswer, clean_answer, without_thoughts

CAPTION = ("caption",)
"""The keys of a structured caption."""
_CHARACTER = r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING = re.compile(
    rf'\{{\s*"caption"\s*:\s*"((?:[^"\\]|{_ESCAPE})*)(?:"|(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?$)'
)
"""Up to the closing mark, or to where the text was cut, maybe within an escape."""
_JSON = re.compile(r'\s*(?:```\w*\s*)?(?:\{\s*"|\[\s*[{"])')


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

    Thoughts before it and remarks around it are left out, and so are values that are no text, or
    whose words are lost.

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
    texts = {key: clean_answer(value) for key, value in pairs if isinstance(value, str)}
    return {key: each.text for key, each in texts.items() if not each.lost}


def caption_in_json(text: str) -> str | None:
    """The caption of a structured answer, also of one that the token limit cut; None for no JSON.

    Fences and remarks around it do not matter.

    >>> caption_in_json('{"caption": "A sign says \\\\"Go\\\\"."}')
    'A sign says "Go".'
    >>> caption_in_json('{"caption": "A dog. A ca'), caption_in_json("A dog.")
    ('A dog. A ca', None)
    """
    found = _STRING.search(text)
    return None if found is None else json.loads(f'"{found[1]}"', strict=False)


def plain_answer(
    text: str, *, structured: bool, tokens: Collection[str] = (), prompt: str = ""
) -> CleanAnswer | None:
    """The answer itself, clean, and taken out of its JSON.

    Args:
        text: as the model wrote it.
        structured: whether JSON was asked for; None is returned where there is none.
        tokens: the control tokens of the model's tokenizer, where it is known.
        prompt: is cut from the beginning, where the model repeats it.

    Returns:
        None also for JSON that was not asked for and has no caption.
    """
    answer = without_thoughts(text)
    said = caption_in_json(answer)
    if said is None and (structured or _JSON.match(answer)):
        return None
    whole = text if said is None else said
    return clean_answer(whole, tokens=tokens, prompt=prompt)
