"""Embed with the encoders of an objective that has its own, such as ``f-cast``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glit.errors import UserError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, Picture
from glit.evaluation.learned import learned_module
from glit.models.clip.text_rows import lay_out
from glit.runtime.prefetch import batched
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.training.module import EncodingModule, ObjectiveModule
from glit.training.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEncoders(CollectionEmbedder):
    """Embed with an objective's module, from what the objective prepares of every image."""

    objective: Objective
    module: EncodingModule
    split: Callable[[str], list[Span]]

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Float[Tensor, "t d"]:
        different = list(dict.fromkeys(texts))
        self.progress.begin("texts", total=len(different), done=0, drops=False)
        embeddings = []
        for some in batched(iter(different), self.batch_size):
            parts = [self.module.parts_of(text, self.split(text)) for text in some]
            ids = self.tokenizer.encode_closed(
                [part for each in parts for part in each], context=self.context
            )
            rows = lay_out(ids, context=self.context, pad_id=self.tokenizer.end_id)
            found_TD = self.module.embed_texts(rows.to(self.device), [len(each) for each in parts])
            embeddings.append(F.normalize(found_TD.float(), dim=-1).cpu())
            self.progress.advance(len(some))
        found = torch.cat(embeddings)
        self.check(found, [f"the text {text[:60]!r}" for text in different])
        place = {text: i for i, text in enumerate(different)}
        return found[[place[text] for text in texts]]

    @torch.inference_mode()
    def images(self, collection: Collection, pictures: Sequence[Picture]) -> Float[Tensor, "v d"]:
        def work(picture: Picture) -> tuple[Tensor, dict[str, Tensor]]:
            pixels = self.fitted(collection, picture)
            inputs = dict(self.objective.inputs(self.encoder.side))
            if inputs:
                self.objective.prepare(pixels, "", inputs)
            return pixels, inputs

        embeddings = []
        self.progress.begin("images", total=len(pictures), done=0, drops=False)
        for some in batched(self.ahead(work, pictures), self.batch_size):
            squares = torch.stack([pixels for pixels, _ in some]).to(self.device)
            prepared = {
                name: torch.stack([inputs[name] for _, inputs in some]).to(self.device)
                for name in some[0][1]
            }
            found_VD = self.module.embed_images(squares, prepared)
            embeddings.append(F.normalize(found_VD.float(), dim=-1).cpu())
            self.progress.advance(len(squares))
        found = torch.cat(embeddings)
        self.check(found, [f"image {collection.names[index]}" for index, _ in pictures])
        return found

    def encoded_texts(self, texts: Sequence[str]) -> Iterator[Any]:
        """Raise an error: this model has no tokens of CLIP's.

        Raises UserError.
        """
        raise self._refused("tokens of texts")

    def encoded_images(
        self,
        collection: Collection,
        pictures: Sequence[Picture],
        *,
        tokens: bool = True,
    ) -> Iterator[Any]:
        """Raise an error: this model has no patches of CLIP's.

        Raises UserError.
        """
        raise self._refused("patches of images")

    def _refused(self, what: str) -> UserError:
        return UserError(
            f"{self.name}: was trained with an objective that has encoders of its own, and no "
            f"{what}; measure retrieval, robustness, joint-map or caption-quality, with "
            "evaluate.scorer = 'cosine' or 'sentence-average'"
        )


def with_own_encoders(embedder: CollectionEmbedder, config: EvaluateConfig) -> OwnEncoders:
    """An embedder of the same checkpoint that uses its objective's encoders."""
    objective, module = learned_module(embedder, EncodingModule, scorer=config.scorer)
    return embedder_of_module(embedder, objective, module, config)


def embedder_of_module(
    embedder: CollectionEmbedder,
    objective: Objective,
    module: ObjectiveModule | None,
    config: EvaluateConfig,
) -> OwnEncoders:
    """The same, embedding with the encoders that an objective's module holds."""
    assert isinstance(module, EncodingModule)
    own = {field.name: getattr(embedder, field.name) for field in fields(embedder)}
    split = make_splitter(config.splitter, "en")
    return OwnEncoders(**own, objective=objective, module=module, split=split)
