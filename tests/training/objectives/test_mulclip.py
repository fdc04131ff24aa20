"""MulCLIP: its terms by hand, its variants on a model, what the texts are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from made_features import NUMBERS, SCALE, at, objective_of, random_features
from plain_clip import plain_encoder

from glit.errors import RecipeError
from glit.training.config import TrainConfig
from glit.training.module import Encoded, Tokens
from glit.training.objectives.mulclip import (
    MulClip,
    attended,
    reconstruction,
    sentences_on_patches,
)
from glit.training.setup import prepare
from glit.training.step import run_step

VARIANTS = {
    "Table 5, global only (Eq. 3)": {"lambda_word": 0.0, "lambda_sub": 0.0},
    "w/o LC & w/o SAP": {"calibrate": False, "lambda_sub": 0.0},
    "w/o SAP (Eq. 17)": {"lambda_sub": 0.0},
    "w/o WPR": {"lambda_word": 0.0},
    "all of it (Eq. 11)": {},
    "Table 6, w/ CLIM": {"word_loss": "clim"},
    "Table 10, text": {"word_loss": "text"},
    "Table 10, image": {"word_loss": "image"},
    "Table 10, no reconstruction": {"word_loss": "contrast"},
    "no global (Eq. 13)": {"lambda_global": 0.0},
    "Eq. 15": {"word_loss": "clim-global", "lambda_sub": 0.0},
    "Eq. 16": {"word_loss": "clim", "lambda_sub": 0.0},
    "CLIM on all tokens": {"word_loss": "clim", "calibrate": False},
}


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def test_mulclip_by_hand() -> None:
    f = random_features(3, 0)
    loss, metrics = objective_of("mulclip")(f, SCALE)

    def sigmoid(images: torch.Tensor, texts: torch.Tensor) -> float:
        cosine = (images @ texts.T).tolist()
        signed = [
            (NUMBERS["scale"] * cosine[i][j] + NUMBERS["bias"]) * (1 if i == j else -1)
            for i in range(3)
            for j in range(3)
        ]
        return sum(math.log1p(math.exp(-value)) for value in signed) / 3

    whole = sigmoid(f.image_ND, f.text_ND) + 0.5 * sigmoid(f.image_ND, f.further_text_NSD[:, 0])
    word = float((f.made["word_image"] + f.made["word_text"])[:2].mean())  # sample 2 has no word
    assert metrics["loss_word"].item() == pytest.approx(word)
    wanted = whole + word + metrics["loss_sub"].item()
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


HALF, LOW = math.log(2), math.log1p(math.exp(-10))
"""Errors of a local logit of 0, and of one of -10 that is wrong."""
RIGHT = math.log1p(math.exp(-1))
"""Error of a global logit of 1 that is right, or of -1 that is wrong; one more where it is not."""
LONG, SHORT = 4 * RIGHT / 2, (4 * RIGHT + 2) / 2
"""Scale 2 and bias -1. Images and long captions at 0 and 90 degrees: logits (1, -1) and (-1, 1).
First sentences both at 0: (1, 1) and (-1, -1), half of them on the wrong side."""
SUB = ((2 * HALF + HALF) / 2 + (LOW + 10 + LOW)) / 2
"""Sample 0 has two sentences and sample 1 has one. First ones (0, 0) and (-10, -10), the second one
0; the right one of sample 1 is at -10."""


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, LONG + 0.5 * SHORT + (2 + 6) + SUB),
        (
            {"lambda_global": 2, "lambda_short": 0.25, "lambda_word": 3, "lambda_sub": 5},
            2 * (LONG + 0.25 * SHORT) + 3 * (2 + 6) + 5 * SUB,
        ),
        ({"lambda_word": 0, "lambda_sub": 0}, LONG + 0.5 * SHORT),
        ({"lambda_word": 0}, LONG + 0.5 * SHORT + SUB),
        ({"lambda_global": 0}, (2 + 6) + SUB),
        ({"lambda_sub": 0}, LONG + 0.5 * SHORT + (2 + 6)),
        ({"lambda_global": 0, "lambda_sub": 0, "word_loss": "image"}, 2),
        ({"lambda_global": 0, "lambda_sub": 0, "word_loss": "text"}, 6),
        ({"lambda_global": 0, "lambda_sub": 0, "word_loss": "contrast"}, (4 * HALF) / 2),
        ({"lambda_sub": 0, "word_loss": "clim"}, LONG + 0.5 * SHORT + 0.2 / 2),
        (
            {"lambda_sub": 0, "word_loss": "clim-global"},
            LONG + 0.5 * SHORT + (0.2 + 0.2) / 2 + (0 + 1 / 3 + 0.2) / 2,
        ),
    ],
    ids=repr,
)
def test_two_samples_by_hand(changes, wanted: float) -> None:
    """Eq. 3, 8 and 10, the totals of Eq. 11 to 17, and the variants of Tables 5, 6 and 10.

    Errors of rebuilt patches 1 and 3, of words 5 and 7. For FineLIP's score V is (a, b) and (a, c),
    T is (a, b) and (a): R = (2, 1.5) and (1, 1.5), see FineLIP's test. With class and end tokens a
    and b besides it is V = (a, a, b) and (b, a, c), T = (a, a, b) and (b, a): R = (2, 2) and
    (2/3 + 1, 2/3 + 1), so 0.2 in both rows, and 0 and 1/3 + 0.2 in the columns. For ``contrast``
    the first vectors are taken: all are a, so four logits of 0.
    """
    a, b, c, garbage = torch.eye(5)[:4]
    f = random_features(2, 0)
    f = replace(
        f,
        image_ND=at(0, 90),
        text_ND=at(0, 90),
        further_text_NSD=torch.stack([at(0, 0), at(0, 90)], dim=1),
        valid_further_NS=torch.tensor([[True, True], [True, False]]),
        made={
            "aggregated": torch.stack([at(0, 90), at(0, 45)], dim=1),
            "word_image": torch.tensor([1.0, 3.0]),
            "word_text": torch.tensor([5.0, 7.0]),
            "image_tokens": torch.stack([torch.stack([a, b]), torch.stack([a, c])]),
            "text_tokens": torch.stack([torch.stack([a, b]), torch.stack([a, garbage])]),
        },
        valid_made={"words": torch.tensor([[True, True], [True, False]])},
    )
    objective = MulClip(**changes)
    if objective.word_loss in ("reconstruction", "image", "text"):
        f = replace(f, valid_made={"words": torch.tensor([True, True])})
    assert objective(f, SCALE)[0].item() == pytest.approx(wanted, rel=1e-6)


def made(word_loss: str, *, calibrate: bool = False):
    """What the module makes of one sample of a CLIP that is done by hand: patches (2, 0), (2, 0),
    (0, 2) and (0, 2), words (2, 0) and (0, 2), a sentence (2, 0)."""
    right, up, other = [1.0, 0, -1], [0.0, 1, -1], [1.0, -1, 0]
    slots = torch.tensor([[other, right, up, other, other, other]])
    given = Tokens(
        patch_BPH=torch.tensor([[right, right, up, up]]),
        token_BLH=slots,
        valid_token_BL=torch.arange(6)[None] < 4,
        further_BSD=torch.tensor([[[2.0, 0]]]),
    )
    encoder = plain_encoder()
    module = MulClip(word_loss=word_loss, calibrate=calibrate).module(encoder)
    for refinement in (module.image, module.text) if calibrate else ():
        refinement.keys.weight.data.zero_()
        refinement.keys.bias.data.zero_()
    encoded = Encoded(features=random_features(1, 0), encoder=encoder, batch=None, tokens=given)
    return module(encoded)


def test_what_the_module_makes_by_hand() -> None:
    """Eq. 1, 2 and 5 to 9 on tokens as they come, padding left out.

    A query (2, 0) has logits 4 / sqrt 2 and 0, so it finds (2 s, 2 - 2 s), s = 1 / (1 + e^-(4 /
    sqrt 2)), whether of two words or of two and two patches; (0, 2) finds the mirror image. Their
    cosines are s / n and (1 - s) / n, n the root of s^2 + (1 - s)^2.
    """
    found = made("reconstruction")
    share = 1 / (1 + math.exp(-4 / math.sqrt(2)))
    length = math.hypot(share, 1 - share)
    near, far = 10 * share / length - 10, 10 * (1 - share) / length - 10
    image = -log_sigmoid(near) - log_sigmoid(-near) - 2 * log_sigmoid(-far)  # one patch of its kind
    text = -log_sigmoid(near) - log_sigmoid(-far)
    assert found.rows["word_image"].tolist() == pytest.approx([image], rel=1e-5)
    assert found.rows["word_text"].tolist() == pytest.approx([text], rel=1e-5)
    wanted = torch.tensor([[[share / length, (1 - share) / length]]])
    torch.testing.assert_close(found.rows["aggregated"], wanted)
    assert found.valid["words"].tolist() == [True]


def test_what_is_compared_without_reconstruction_by_hand() -> None:
    """The mean patch and the mean word (Table 10); condensed tokens by keys of zeros, two of four
    patches and three of six words, all of them the mean (Eq. 4, 15 and 16)."""
    half = 0.5**0.5
    for word_loss, calibrate, patches, words in (
        ("contrast", False, 1, 1), ("contrast", True, 1, 1), ("clim", True, 2, 3),
    ):  # fmt: skip
        found = made(word_loss, calibrate=calibrate)
        wanted = torch.tensor([half, half])
        torch.testing.assert_close(found.rows["image_tokens"], wanted.expand(1, patches, 2))
        torch.testing.assert_close(found.rows["text_tokens"], wanted.expand(1, words, 2))
        assert found.valid["words"].tolist() == [[True] * words]


def test_attention_by_hand() -> None:
    """Twice as long a token draws more of the query."""
    query = torch.tensor([[[2.0, 0, 0, 0]]])
    given = torch.tensor([[[1.0, 0, 0, 0], [2.0, 0, 0, 0], [9.0, 9, 9, 9]]])
    share = 1 / (1 + math.exp(-1))  # logits 2 / 2 and 4 / 2
    found = attended(query, given, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(found, torch.tensor([[[2 * share + (1 - share), 0, 0, 0]]]))


def test_reconstruction_against_loops() -> None:
    patches, words = 3 * tokens(2, 3, 4), 3 * tokens(2, 5, 4, seed=1)
    valid = torch.arange(5) < torch.tensor([[5], [2]])
    found = reconstruction(patches, words, valid)
    for n, number in enumerate((5, 2)):
        v, t = patches[n], words[n, :number]
        for own, back, value in (
            (v, torch.softmax(v @ t.T / 2, dim=1) @ t, found[0][n]),
            (t, torch.softmax(t @ v.T / 2, dim=1) @ v, found[1][n]),
        ):
            cosine = F.normalize(own, dim=1) @ F.normalize(back, dim=1).T
            error = 0.0
            for i in range(len(own)):
                for j in range(len(own)):
                    logit = 10 * float(cosine[i, j]) - 10
                    error -= log_sigmoid(logit if i == j else -logit)
            assert value.item() == pytest.approx(error / len(own))


def test_neither_order_nor_padding_of_tokens_matters() -> None:
    patches, words = tokens(2, 3, 4), tokens(2, 5, 4, seed=1)
    valid = torch.arange(5) < torch.tensor([[5], [2]])
    wanted = reconstruction(patches, words, valid)
    order = torch.tensor([2, 4, 0, 1, 3])
    wider = torch.cat([words, tokens(2, 2, 4, seed=2)], dim=1)
    for found in (
        reconstruction(patches[:, [1, 2, 0]], words[:, order], valid[:, order]),
        reconstruction(patches, wider, F.pad(valid, (0, 2))),
        reconstruction(patches, torch.where(valid[..., None], words, 1e9), valid),
    ):
        torch.testing.assert_close(found, wanted)


def test_sentences_on_patches_against_a_loop() -> None:
    """Samples of two, one and no sentence."""
    aggregated, sentences = (F.normalize(tokens(3, 2, 4, seed=s), dim=-1) for s in (0, 1))
    valid = torch.tensor([[True, True], [True, False], [False, False]])
    found = sentences_on_patches(aggregated, sentences, valid)
    error = 0.0
    for n in (0, 1):
        number = int(valid[n].sum())
        for i in range(number):
            for m in (m for m in range(3) if valid[m, i]):
                logit = 10 * float(aggregated[n, i] @ sentences[m, i]) - 10
                error -= log_sigmoid(logit if n == m else -logit) / number
    assert found.item() == pytest.approx(error / 2)


def test_gradients_of_the_tokens_terms() -> None:
    valid = torch.tensor([[True, True, False], [True, True, True]])
    inputs = [tokens(2, 2, 4).requires_grad_(), tokens(2, 3, 4, seed=1).requires_grad_()]

    def word(patches, words):
        return torch.stack(reconstruction(patches, words, valid))

    def sub(patches, sentences):
        aggregated = F.normalize(attended(sentences, patches), dim=-1)
        return sentences_on_patches(aggregated, F.normalize(sentences, dim=-1), valid)

    assert torch.autograd.gradcheck(word, inputs)
    assert torch.autograd.gradcheck(sub, inputs)


def test_texts_are_the_first_sentences() -> None:
    caption, spans = "A dog. It barks. A cat.", [(0, 6), (7, 16), (17, 23)]
    assert MulClip(max_sentences=2).texts(caption, spans, None) == ["A dog.", "It barks."]
    assert MulClip(lambda_sub=0.0).texts(caption, spans, None) == ["A dog."]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lambda_global": 0.0, "lambda_word": 0.0, "lambda_sub": 0.0}, "all are 0"),
        ({"lambda_sub": math.nan}, "lambda_sub: found nan, want >= 0"),
        ({"calibration_ratio": 1.5}, "calibration_ratio: found 1.5, want above 0, at most 1"),
        ({"word_loss": "both"}, "found 'both'; known: reconstruction, image"),
        ({"max_sentences": 0}, "max_sentences: found 0, want >= 1"),
        ({"refinement_lr": -1.0}, "refinement_lr: found -1.0, want above 0"),
    ],
)
def test_values_that_cannot_be(changes, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        MulClip(**changes)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, write_dataset):
    return write_dataset(tmp_path_factory.mktemp("mulclip") / "dataset", 6)


def one_step(model, dataset, changes, micro_batch_size: int = 0):
    """Metrics and gradients; text windows of 60, so that padding differs from part to part."""
    config = TrainConfig(
        model=str(model), objective="mulclip", options=MulClip(**changes), context=60,
        batch_size=6, micro_batch_size=micro_batch_size, num_workers=0,
    )  # fmt: skip
    made = prepare(config, str(dataset))
    metrics = run_step(
        next(made.loader.epoch(0)),
        model=made.model,
        objective=made.objective,
        accelerator=Accelerator(cpu=True),
    )
    return metrics, {name: p.grad for name, p in made.model.named_parameters()}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns_with_all_that_it_brings(tiny_clip, dataset, name: str) -> None:
    """And in parts as in one."""
    changes = VARIANTS[name]
    metrics, gradients = one_step(tiny_clip, dataset, changes)
    terms = {"loss_long", "loss_short", "loss_word", "loss_sub"}
    weights = MulClip(**changes)
    wanted = terms if weights.lambda_global else terms - {"loss_long", "loss_short"}
    wanted = wanted if weights.lambda_word else wanted - {"loss_word"}
    assert set(metrics) & terms == (wanted if weights.lambda_sub else wanted - {"loss_sub"})
    assert all(gradient is not None for gradient in gradients.values())
    own = {n: g for n, g in gradients.items() if n.startswith("module.") and n[7] in "it"}
    assert all(gradient.abs().sum() > 0 for gradient in own.values())
    sides = {name.split(".")[1] for name in own}
    expected = {"image", "text"} if weights.lambda_word else {"image"}
    assert sides == (expected if weights.calibrate and weights.local else set())
    in_parts, found = one_step(tiny_clip, dataset, changes, micro_batch_size=4)
    assert in_parts["loss"].item() == pytest.approx(metrics["loss"].item(), rel=1e-5)
    for key, gradient in gradients.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-3, atol=1e-5, msg=key)
