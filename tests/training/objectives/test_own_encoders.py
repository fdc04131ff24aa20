"""An objective from outside with encoders of its own: trained, measured, and taken nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from evaluating import config, run_of
from torch import nn

from glit import extend
from glit.errors import RecipeError, UserError, WeightsError
from glit.evaluation.run import evaluate, open_embedder
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.protocols import MatcherConfig
from glit.models.clip.embedder import Embedder
from glit.models.weights import resolve
from glit.training.losses import contrastive
from glit.training.module import EncodingModule, ModuleOutput
from glit.training.objective import InputSpec, Objective
from glit.training.objectives import OBJECTIVES

WIDTH = 8


class Words(EncodingModule):
    """The mean of a text's word vectors against a projection of an image's mean colour."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__()
        self.words = nn.Embedding(num_tokens, WIDTH)
        self.colour = nn.Linear(3, WIDTH)

    def forward(self, encoded) -> ModuleOutput:
        batch = encoded.batch
        numbers = [1] * len(batch.texts.length_T)
        images = F.normalize(self.embed_images(batch.pixels_V3SS, batch.prepared), dim=-1)
        texts = F.normalize(self.embed_texts(batch.texts, numbers), dim=-1)
        return ModuleOutput(rows={"images": images, "texts": texts[: batch.num_global]})

    def embed_images(self, squares_B3SS, prepared):
        return self.colour(prepared["colour"])

    def parts_of(self, text, sentences):
        return [text[start:end] for start, end in sentences] or [text]

    def embed_texts(self, parts, number_T):
        ids = parts.input_ids_RW.flatten()
        means = [
            self.words(ids[offset : offset + length]).mean(dim=0)
            for offset, length in zip(parts.offset_T, parts.length_T, strict=True)
        ]
        return torch.stack([each.mean(dim=0) for each in torch.stack(means).split(list(number_T))])


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsAndColour(Objective):
    own_encoders: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        return InputSpec()

    def inputs(self, side):
        return {"colour": torch.zeros(3)}

    def prepare(self, image, caption, inputs) -> None:
        inputs["colour"].copy_(image.float().mean(dim=(1, 2)) / 255)

    def module(self, encoder):
        return Words(encoder.clip.config.text_config.vocab_size)

    def __call__(self, features, logit_scale):
        made = features.made
        return contrastive(made["images"], made["texts"], logit_scale, features.valid_N), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutModule(WordsAndColour):
    def module(self, encoder):
        return None


@pytest.fixture
def outside():
    extend.add_objective("words", WordsAndColour)
    extend.add_objective("no-words", WithoutModule)
    yield
    for name in ("words", "no-words"):
        OBJECTIVES.pop(name, None)


@pytest.fixture
def run(outside, tiny_clip, make_dataset, tmp_path):
    return run_of("words", tiny_clip, make_dataset(6), tmp_path / "run", context=77, lr=1e-2)


def test_a_run_is_measured_by_the_encoders_of_an_objective_from_outside(run, make_dataset) -> None:
    settings = config(context=77)
    (found,) = evaluate("retrieval", [str(run)], str(make_dataset(6)), settings)
    assert set(found.metrics) >= {"image_retrieval_recall@1", "text_retrieval_recall@1"}
    embedder = open_embedder(str(run), settings)
    text = "A red circle. A blue square is beside it."
    one, other = embedder.texts(["A red circle."]), embedder.texts(["A blue square is beside it."])
    words = embedder.module.words.weight.detach()
    by_hand = [
        words[embedder.tokenizer.encode_closed([each], context=77)[0]].mean(dim=0)
        for each in ("A red circle.", "A blue square is beside it.")
    ]
    for vector, sentence in zip((one, other), by_hand, strict=True):
        torch.testing.assert_close(vector[0], F.normalize(sentence, dim=0))
    whole = F.normalize(torch.stack(by_hand).mean(dim=0), dim=0)
    torch.testing.assert_close(embedder.texts([text])[0], whole)
    with pytest.raises(UserError, match="has encoders of its own, and no patches of images"):
        evaluate("localize", [str(run)], str(make_dataset(6)), settings)


def test_no_other_use_takes_the_model_that_such_a_run_started_from(run) -> None:
    with pytest.raises(WeightsError, match="a run of 'words', whose encoders are its own"):
        Embedder.open(str(run))
    with pytest.raises(WeightsError, match="a run of 'words', whose encoders are its own"):
        ClipMatcher(MatcherConfig(), resolve(str(run / "last")))


def test_without_its_plugin_such_a_run_is_not_measured_as_another_model(run, make_dataset) -> None:
    del OBJECTIVES["words"]
    with pytest.raises(UserError, match="trained with 'words', which is no objective of this glit"):
        evaluate("retrieval", [str(run)], str(make_dataset(6)), config(context=77))


def test_an_objective_has_to_bring_the_encoders_it_announces(
    outside, tiny_clip, make_dataset, tmp_path
) -> None:
    with pytest.raises(RecipeError, match=r"module\(\) has to return .*EncodingModule"):
        run_of("no-words", tiny_clip, make_dataset(6), tmp_path / "run", context=77)
