"""Why a model ended its answer: whole, cut at the limit, or something that cannot be kept."""

from __future__ import annotations

from typing import Any

from glit.backends.captioners.http_exchange import BrokenAnswerError
from glit.data.records import DropError

_FILTERS = {"content_filter", "safety", "prohibited_content", "guardrail_intervened"}


def is_cut(reason: Any) -> bool:
    """Return whether an answer was cut at ``max_tokens``, by its ``finish_reason``.

    >>> is_cut("stop"), is_cut("length")
    (False, True)

    Raises:
        DropError: a filter stopped it.
        BrokenAnswerError: it ended in another way, or without saying how; it may be half.
    """
    if reason in ("stop", "length"):
        return reason == "length"
    if str(reason).lower() in _FILTERS:
        raise DropError("content_filter", f"a filter stopped the answer (finish_reason {reason!r})")
    if reason is None:
        raise BrokenAnswerError("the answer has no finish_reason, so that it may be cut anywhere")
    raise BrokenAnswerError(f"the answer was not finished (finish_reason {str(reason)[:100]!r})")
