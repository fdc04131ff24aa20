"""Why a model ended its answer: whole, cut at the limit, or something that cannot be kept."""

from __future__ import annotations

import re
from typing import Any

from glit.data.records import DropError
from glit.models.backends.captioners.http_exchange import BrokenAnswerError

_ENDS = {"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn", "end", "none",
         "complete", "completed", "finish", "finished", "eot"}  # fmt: skip
_CUTS = {"length", "max_tokens", "model_length", "max_length", "max_new_tokens",
         "max_output_tokens", "token_limit", "context_length"}  # fmt: skip
_FILTERS = {"content_filter", "safety", "prohibited_content", "guardrail_intervened", "recitation",
            "blocklist", "spii", "image_safety", "refusal"}  # fmt: skip
"""In small letters; servers differ in what they say."""
_WHOLE = re.compile(r"[.!?…。！？।}\]>`][\"'”’)»*]*\s*$")


def is_cut(reason: Any, text: str) -> bool:
    """Return whether an answer was cut at ``max_tokens``, by its ``finish_reason``.

    Servers that give none, or null, ended the answer by themselves, if it ends like a sentence.

    >>> is_cut("stop", "A dog"), is_cut("length", "A dog."), is_cut("FinishReason.MAX_TOKENS", "")
    (False, True, True)
    >>> is_cut(None, "A dog."), is_cut(None, "A dog and a")
    (False, True)

    Raises:
        DropError: a filter stopped it.
        BrokenAnswerError: it ended in another way; it may be half.
    """
    if not reason:
        return not _WHOLE.search(text)
    said = str(reason).strip().lower().rpartition(".")[2].removeprefix("finish_reason_")
    if said in _ENDS or said in _CUTS:
        return said in _CUTS
    if said in _FILTERS:
        raise DropError("content_filter", f"a filter stopped the answer (finish_reason {reason!r})")
    raise BrokenAnswerError(f"the answer was not finished (finish_reason {str(reason)[:100]!r})")
