"""Text to token ids; special tokens that occur in the text are tokenised as ordinary text."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from glit.errors import WeightsError
from glit.models.pretrained import as_weights_error
from glit.recipes.extras import require
from glit.recipes.resources import is_mini_folder

CLIP_TOKENIZER = "clip-tokenizer"
"""The name, in ``manifests/weights.toml``, of CLIP's vocabulary."""
_CLIP_VOCABULARY = Path(__file__).with_name("clip_vocabulary") / "tokenizer.json.gz"
_LEGACY_END = 2
_FEW = 64
"""Number of texts from which on they are tokenised as a batch: of fewer, its threads cost half as
much CPU time again as they save."""


class SpanTokenizer(Protocol):
    """Text to token ids, as token spans need it."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, of any length, without start and end token."""
        ...

    def definition(self) -> str:
        """The whole tokenizer as JSON."""
        ...


def open_span_tokenizer(path: Path) -> SpanTokenizer:
    """The tokenizer of a model folder; that of a mini model, and CLIP's own, need no extra."""
    if path == _CLIP_VOCABULARY:
        return clip_tokenizer()
    if is_mini_folder(path):
        return FileTokenizer((path / "tokenizer.json").read_bytes())
    return TextTokenizer(path)


@cache
def clip_tokenizer() -> FileTokenizer:
    """CLIP's tokenizer, whose vocabulary is part of glit."""
    return FileTokenizer(gzip.decompress(_CLIP_VOCABULARY.read_bytes()))


class FileTokenizer:
    """A tokenizer whose ``tokenizer.json`` is all that there is to it.

    Args:
        content: of that file.
    """

    def __init__(self, content: bytes) -> None:
        self._fast: Any = Tokenizer.from_buffer(content)
        _take_any_text(self._fast)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return _encoded(self._fast, texts)

    def definition(self) -> str:
        return self._fast.to_str()


class TextTokenizer:
    """A model's tokenizer as token spans and embeddings need it.

    Where a caption contains the characters ``<|endoftext|>``, or another special token, they
    become ordinary tokens: they neither end the text early nor shift a token span.
    """

    def __init__(self, path: Path) -> None:
        self.hf = load_tokenizer(path)
        self.start_id = int(self.hf.bos_token_id)
        self.end_id = int(self.hf.eos_token_id)
        # a copy, since calling `hf` with padding changes the settings of its backend tokenizer
        self._fast = type(self.hf.backend_tokenizer).from_str(self.hf.backend_tokenizer.to_str())
        _take_any_text(self._fast)

    def check_fits(self, num_rows: int, model: str, *, end: int | None = None) -> None:
        """Refuse a model that has no embedding for some of the tokens, or reads another end token.

        Args:
            num_rows: of the model's table of token embeddings.
            model: for the message.
            end: the end token in the model's configuration; None and 2, which CLIP's older ones
                say of every tokenizer, say nothing.

        Raises:
            WeightsError: names both numbers.
        """
        if end not in (None, _LEGACY_END, self.end_id):
            raise WeightsError(
                f"model {model}: its tokenizer ends a text with token {self.end_id}, but its "
                f"config.json says {end}; put the tokenizer there that it was trained with"
            )
        if len(self.hf) <= num_rows:
            return
        # special tokens in a text are ordinary text, so most of those are never met
        met = {self.start_id, self.end_id, self.hf.pad_token_id}
        unmet = set(self.hf.all_special_ids) - met
        if max(set(self.hf.get_vocab().values()) - unmet) >= num_rows:
            raise WeightsError(
                f"model {model}: its tokenizer has {len(self.hf)} tokens, but the weights have "
                f"embeddings for {num_rows}; put the tokenizer there that it was trained with, or "
                "resize its embeddings"
            )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, of any length, without start and end token."""
        return _encoded(self._fast, texts)

    def definition(self) -> str:
        """The whole tokenizer as JSON."""
        return self._fast.to_str()

    def encode_closed(self, texts: Sequence[str], *, context: int) -> list[list[int]]:
        """Start token, token ids and end token of each text, at most ``context`` tokens in all."""
        return [[self.start_id, *ids[: context - 2], self.end_id] for ids in self.encode(texts)]


def load_tokenizer(path: Path) -> Any:
    """The Hugging Face tokenizer of a model folder; special tokens in a text are ordinary text.

    Raises:
        MissingExtraError: transformers is not installed.
        WeightsError: the folder holds no tokenizer with a start and an end token.
    """
    require("models", needed_for="the tokenizer")
    from transformers import AutoTokenizer

    with as_weights_error(f"{path}: no tokenizer can be loaded from it"):
        tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    if tokenizer.bos_token_id is None or tokenizer.eos_token_id is None:
        raise WeightsError(f"{path}: the tokenizer has no start or no end token, as CLIP's has")
    _take_any_text(tokenizer.backend_tokenizer)
    return tokenizer


def _take_any_text(tokenizer: Any) -> None:
    """Read texts of any length, and special tokens in them as ordinary text."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True


def _encoded(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    if len(texts) < _FEW:
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encoded]


def tokenizer_hash(path: Path) -> str:
    """SHA-256, in hex, of the tokenizer's whole definition."""
    return hashlib.sha256(open_span_tokenizer(path).definition().encode()).hexdigest()
