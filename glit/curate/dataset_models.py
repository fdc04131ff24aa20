"""Open a finished dataset's own matcher and tokenizer, to score and split corrected samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from glit.data.records import Drop, Sample, Scores, Sentence
from glit.dataset.reader import Dataset
from glit.errors import InputError, UserError, first_line
from glit.images import Pixels
from glit.models.backends.matchers import MATCHERS
from glit.models.tokenizer import SpanTokenizer, open_span_tokenizer, tokenizer_hash
from glit.models.weights import Resolved, resolve
from glit.recipes.extras import require
from glit.runtime.process_state import without_bars
from glit.stages.image_source import ImageSource
from glit.stages.score import ScoreConfig, ScoreStage
from glit.stages.split import SplitConfig, SplitStage
from glit.text.spans import token_spans


class DatasetModels:
    """The models of a dataset, each loaded when it is first asked for.

    Args:
        dataset: a finished one.
        matcher: name or folder of its matcher; empty looks for it by the name in the recipe.
    """

    def __init__(self, dataset: Dataset, *, matcher: str = "") -> None:
        self._manifest = dataset.manifest
        self._path, self._matcher = dataset.path, matcher
        self.missing = ""
        """Why scores are not known; empty while the matcher was not missed."""

    @property
    def from_files(self) -> bool:
        """True if pairs were read from files, without a matcher."""
        return self._manifest.recipe.pairs_from_files

    def split(self, caption: str) -> tuple[Sentence, ...]:
        """The sentences of a caption, with the dataset's splitter and tokenizer.

        Raises:
            UserError: the tokenizer, or the splitter's package, is not here.
        """
        return self._splitter.sentences(caption)

    def token_span(self, caption: str, start: int, end: int) -> tuple[int, int]:
        """The token span of characters of a caption."""
        return token_spans(caption, [(start, end)], self._tokenizer.encode)[0]

    def score(self, sample: Sample, image: Callable[[], Pixels]) -> Scores | None:
        """Score a sample; None, and the reason in :attr:`missing`, without the matcher.

        Raises:
            UserError: a matcher was named and is not the dataset's, or the matcher fails.
        """
        if self._stage is None:
            return None
        (made,) = self._stage.process([sample], _Given(image()))
        if isinstance(made, Drop):
            raise InputError(f"the matcher failed: {made.message}")
        return made.scores

    @cached_property
    def _tokenizer(self) -> SpanTokenizer:
        wanted = self._manifest.tokenizer
        names = [self._matcher, *self._manifest.recipe.tokenizers, wanted.name]
        for name in dict.fromkeys(filter(None, names)):
            try:
                found = resolve(name)
                if tokenizer_hash(found.path) == wanted.sha256:
                    return open_span_tokenizer(found.path)
            except (UserError, OSError):
                continue
        raise InputError(
            f"{self._path}: edited captions are split with the dataset's tokenizer "
            f"{wanted.name!r}, which is not here; name its folder with --matcher"
        )

    @cached_property
    def _splitter(self) -> SplitStage:
        config = self._manifest.recipe.config(SplitStage.name, SplitConfig)
        if config.splitter == "punkt":
            require("punkt", needed_for="split.splitter = 'punkt'")
        return SplitStage(config, self._tokenizer)

    @cached_property
    def _stage(self) -> ScoreStage | None:
        models, recipe = self._manifest.models, self._manifest.recipe
        if "matcher" not in models or "matcher-2" in models:
            self.missing = "the dataset has several matchers, or none"
            return None
        wanted = models["matcher"]
        try:
            config = recipe.config(ScoreStage.name, ScoreConfig)
            found = resolve(self._matcher or config.model, config.revision)
            if found.sha256 != wanted.sha256:
                raise InputError(f"{found.name!r} is not the dataset's matcher {wanted.name!r}")
            if config.phrases or recipe.is_grounded:
                require("phrases", needed_for="the head phrases of corrected sentences")
            return self._opened(config, found)
        except UserError as error:
            if self._matcher:
                raise InputError(f"--matcher {self._matcher}: {first_line(error)}") from error
            self.missing = first_line(error)
            return None

    def _opened(self, config: ScoreConfig, model: Resolved) -> ScoreStage:
        precision = self._manifest.precision.get("score", config.precision)
        backend = MATCHERS[config.backend]
        settled = backend.settled(dataclasses.replace(config, precision=precision))
        require("models", needed_for="the matcher")
        with without_bars():
            return ScoreStage(settled, backend.make(settled, model))


class _Given(ImageSource):
    """A source of one image that is decoded already."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        return iter([self._pixels for _ in samples])
