"""Map a captioner's token probabilities to the characters of its caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from glit.data.records import Token

LOGPROB_DECIMALS = 3
"""Kept to this many decimals, well above the noise by which batching moves them."""


class ChosenLogprobs:
    """Watches transformers' ``generate``: a logits processor that changes nothing.

    A step shows the logits of the token to come and, as the last of ``input_ids``, the token that
    was chosen from those before. So only one step's logits are kept, and nothing waits for the
    device.
    """

    def __init__(self) -> None:
        self._logits: Any = None
        self._found: list[Any] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """The scores as they are. ``input_ids`` [B, T], ``scores`` [B, V]."""
        self._take(input_ids[:, -1])
        self._logits = scores.float()
        return scores

    def finish(self, last_ids: Any) -> list[list[float]]:
        """Per sequence the logarithms of its tokens' probabilities.

        Args:
            last_ids: the last token of every sequence [B], which no further step shows.
        """
        import torch

        self._take(last_ids)
        self._logits = None
        return torch.stack(self._found, dim=1).tolist()

    def _take(self, ids: Any) -> None:
        if self._logits is not None:
            chosen = self._logits.gather(1, ids[:, None])[:, 0]
            self._found.append(chosen - self._logits.logsumexp(dim=1))


def tokens_of_text(
    tokenizer: Any, ids: Sequence[int], logprobs: Sequence[float], text: str
) -> tuple[Token, ...] | None:
    """Return which characters of the text every token ends at.

    Args:
        tokenizer: a fast one of transformers.
        ids: what the captioner wrote, end token included or not.
        logprobs: as many.
        text: what the ids decode to without special tokens.

    Returns:
        None where the pieces do not make up the text, or a number is not finite.
    """
    from tokenizers.decoders import DecodeStream

    stream, whole = DecodeStream(skip_special_tokens=True), tokenizer.backend_tokenizer
    special = set(tokenizer.all_special_ids)
    found: list[Token] = []
    written = ""
    for token, logprob in zip(ids, logprobs, strict=True):
        if token in special:
            continue
        written += stream.step(whole, token) or ""
        found.append(Token(char_end=len(written), logprob=round(logprob, LOGPROB_DECIMALS)))
    good = written == text and all(math.isfinite(each.logprob) for each in found)
    return tuple(found) if good else None
