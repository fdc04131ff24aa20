"""Embed with the encoders of an objective that has its own (``f-cast``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glit.clip.f_cast.chunks import balanced_chunks
from glit.clip.f_cast.superpixels import superpixels
from glit.clip.text_rows import lay_out
from glit.errors import UserError
from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, Picture
from glit.evaluation.learned import learned_module
from glit.runtime.prefetch import batched
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.training.objectives.f_cast import FCastModule


@dataclass(frozen=True, slots=True, kw_only=True)
class FCastEmbedder(CollectionEmbedder):
    """Embed with F-CAST's whole features (section 3.3: parts are for training only).

    A text's sentences go into chunks as fairly as possible; a text without any is one chunk.
    """

    module: FCastModule
    split: Callable[[str], list[Span]]

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Float[Tensor, "t d"]:
        different, encoder = list(dict.fromkeys(texts)), self.module.encoders.text
        most = self.module.num_chunks
        pieces = [self._chunks(text) for text in different]
        flat = [piece for some in pieces for piece in some]
        ids = self.tokenizer.encode_closed(flat, context=self.context)
        self.progress.begin("chunks", total=len(ids), done=0, drops=False)
        encoded = []
        for some in batched(iter(ids), self.batch_size * most):
            rows = lay_out(list(some), context=self.context, pad_id=self.tokenizer.end_id)
            encoded.append(encoder.chunks(rows.to(self.device)))
            self.progress.advance(len(some))
        chunks = torch.cat(encoded)
        number_T = torch.tensor([len(some) for some in pieces], device=self.device)
        valid_TN = torch.arange(most, device=self.device) < number_T[:, None]
        slots = chunks.new_zeros(len(different), most, chunks.shape[-1])
        slots[valid_TN] = chunks
        parts = [
            F.normalize(encoder.whole(some, valid).float(), dim=-1).cpu()
            for some, valid in zip(
                slots.split(self.batch_size), valid_TN.split(self.batch_size), strict=True
            )
        ]
        found = torch.cat(parts)
        self.check(found, [f"the text {text[:60]!r}" for text in different])
        place = {text: i for i, text in enumerate(different)}
        return found[[place[text] for text in texts]]

    def _chunks(self, text: str) -> list[str]:
        spans = balanced_chunks(self.split(text), self.module.num_chunks)
        return [text[start:end] for start, end in spans] or [text]

    def images(self, collection: Collection, pictures: Sequence[Picture]) -> Float[Tensor, "v d"]:
        num = self.module.encoders.vision.num_superpixels

        def work(picture: Picture) -> tuple[Tensor, Tensor]:
            pixels = self.fitted(collection, picture)
            found = superpixels(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()), num)
            return pixels, torch.from_numpy(found)

        embeddings = []
        self.progress.begin("images", total=len(pictures), done=0, drops=False)
        for some in batched(self.ahead(work, pictures), self.batch_size):
            pixels, segments = (
                torch.stack(each).to(self.device) for each in zip(*some, strict=True)
            )
            with torch.inference_mode():
                whole_VD = self.module.encoders.images(pixels, segments)[1]
            embeddings.append(F.normalize(whole_VD.float(), dim=-1).cpu())
            self.progress.advance(len(pixels))
        found = torch.cat(embeddings)
        self.check(found, [f"image {collection.names[index]}" for index, _ in pictures])
        return found

    def encoded_texts(self, texts: Sequence[str]) -> Iterator[Any]:
        """Raise an error: this model has chunks, not tokens.

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
        """Raise an error: this model has segments, not patches.

        Raises UserError.
        """
        raise self._refused("patches of images")

    def _refused(self, what: str) -> UserError:
        return UserError(
            f"{self.name}: was trained with 'f-cast', which has no {what}; measure retrieval, "
            "robustness, joint-map or caption-quality, with evaluate.scorer = 'cosine' or "
            "'sentence-average'"
        )


def with_own_encoders(embedder: CollectionEmbedder, config: EvaluateConfig) -> FCastEmbedder:
    """An embedder of the same checkpoint that uses its objective's encoders."""
    module = learned_module(embedder, FCastModule, scorer=config.scorer)
    return embedder_of_module(embedder, module, config)


def embedder_of_module(
    embedder: CollectionEmbedder, module: nn.Module | None, config: EvaluateConfig
) -> FCastEmbedder:
    """The same, embedding with the encoders that an objective's module holds."""
    assert isinstance(module, FCastModule)
    own = {field.name: getattr(embedder, field.name) for field in fields(embedder)}
    return FCastEmbedder(**own, module=module, split=make_splitter(config.splitter, "en"))
