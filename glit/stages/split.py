"""Split: captions become sentences with exact character and token spans."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from glit.data import rows
from glit.data.records import Drop, Sample, Sentence, Token
from glit.data.schema import SENTENCE
from glit.errors import WeightsError
from glit.models.backends.captioners.token_probabilities import LOGPROB_DECIMALS
from glit.models.backends.matchers import MATCHERS
from glit.models.files import has_tokenizer, model_type
from glit.models.tokenizer import CLIP_TOKENIZER, SpanTokenizer, open_span_tokenizer
from glit.models.weights import is_mini
from glit.recipes.config import RecipeTable, is_enabled, require_value
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe
from glit.text.sentences import make_splitter
from glit.text.spans import token_spans

_LANGUAGE = re.compile(r"[a-z]{2,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig(RecipeTable):
    """Sentence splitting and token spans."""

    table: ClassVar = "split"
    splitter: Literal["sentencex", "punkt", "dot"] = "sentencex"
    """``sentencex``, ``punkt`` (NLTK), or ``dot``, which splits at every full stop as the papers'
    scripts do."""
    language: str = "en"
    """Language code for sentencex and Punkt: ``en``, ``de``."""
    tokenizer: str = ""
    """The model whose tokenizer defines the token spans; empty takes the matcher's, and in a recipe
    without a matcher ``clip-tokenizer``, CLIP's own vocabulary, which is part of glit."""
    context: int = 248
    """Window of the stretched text encoder, in tokens; a span beyond it is not ``in_window``."""
    short_context: int = 77
    """A sentence that alone has more tokens than this is ``truncated`` when it is embedded."""

    def check(self) -> None:
        require_value(
            self.splitter != "sentencex" or bool(_LANGUAGE.fullmatch(self.language)),
            f"[split] language: found {self.language!r}, want a code such as 'en'",
        )
        require_value(
            3 <= self.short_context <= self.context,
            f"[split] short_context: found {self.short_context}, want 3 to context",
        )


class SplitStage(Stage):
    """Sentences of every caption."""

    name = "split"
    version = 4
    reads = ("caption",)
    makes = ("sentences",)
    title, shows = "Sentences", "splitter"
    config = SplitConfig
    columns = (("sentences", pa.list_(SENTENCE)),)
    as_rows = (rows.sentence_row, rows.sentence)

    def __init__(self, config: SplitConfig, tokenizer: SpanTokenizer) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._splitter = make_splitter(config.splitter, config.language)

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        name, _ = cls.models(recipe)["tokenizer"]
        built_in = name == CLIP_TOKENIZER or is_mini(name)
        found = {} if built_in else {"models": f"the tokenizer of {name}"}
        if recipe.of(SplitConfig).splitter == "punkt":
            found["punkt"] = "split.splitter = 'punkt'"
        return found

    @classmethod
    def models(cls, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """No weights are loaded, a tokenizer is."""
        name = recipe.of(SplitConfig).tokenizer
        has_matcher = is_enabled(recipe.propose) and MATCHERS[recipe.score.backend].needs_model
        if name or not has_matcher:
            return {"tokenizer": (name or CLIP_TOKENIZER, "main")}
        return {"tokenizer": (recipe.score.model, recipe.score.revision)}

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Token spans come after captions, so a folder without a tokenizer is refused here."""
        model = plan.models["tokenizer"]
        if model_type(model.path) and not has_tokenizer(model.path):
            raise WeightsError(
                f"tokenizer: model {model.name!r} has no tokenizer in its folder; set "
                "split.tokenizer to one that has"
            )

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        return {"tokenizer": plan.models["tokenizer"].identity()}

    @classmethod
    def open(cls, plan: Plan) -> SplitStage:
        return cls(plan.config(SplitConfig), open_span_tokenizer(plan.models["tokenizer"].path))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            assert sample.caption is not None
            sentences = self.sentences(sample.caption.text, sample.caption.tokens)
            if not sentences:
                yield Drop(reason="no_sentence", message="the splitter found no sentence")
            else:
                yield dataclasses.replace(sample, sentences=sentences)

    def sentences(
        self, caption: str, written: tuple[Token, ...] | None = None
    ) -> tuple[Sentence, ...]:
        """Sentences of one caption, in order.

        Args:
            caption: the whole text.
            written: its tokens as the captioner wrote them, which tell how sure it was.
        """
        spans = [
            span for span in self._splitter(caption) if any(map(str.isalnum, caption[slice(*span)]))
        ]
        tokens = token_spans(caption, spans, self._tokenizer.encode)
        room = self._config.short_context - 2
        return tuple(
            Sentence(
                text=caption[start:end],
                char_start=start,
                char_end=end,
                token_start=first,
                token_end=last,
                # the window's last place belongs to the end token
                in_window=last <= self._config.context - 1,
                truncated=last - first > room,
                **logprobs_within(written, start, end),
            )
            for (start, end), (first, last) in zip(spans, tokens, strict=True)
        )


def logprobs_within(
    written: tuple[Token, ...] | None, char_start: int, char_end: int
) -> dict[str, float]:
    """Mean and lowest logarithm of the probabilities of the tokens that end inside a sentence.

    >>> tokens = (Token(char_end=1, logprob=-0.5), Token(char_end=4, logprob=-1.5))
    >>> logprobs_within(tokens, 0, 4)
    {'mean_logprob': -1.0, 'min_logprob': -1.5}
    """
    own = [each.logprob for each in written or () if char_start < each.char_end <= char_end]
    if not own:
        return {}
    mean = round(sum(own) / len(own), LOGPROB_DECIMALS)
    return {"mean_logprob": mean, "min_logprob": min(own)}
