"""F-CAST's equations on cases worked by hand: texts, pooling, both losses, grouping."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from made_features import SCALE, at, random_features
from plain_clip import plain_model

from glit.models.clip.text_rows import lay_out
from glit.training.module import Encoded
from glit.training.objectives.f_cast.grouping import Grouping
from glit.training.objectives.f_cast.objective import FCast, FCastModule
from glit.training.objectives.f_cast.text import TwoStageText


def cost(logit: float) -> float:
    """-log sigmoid."""
    return math.log1p(math.exp(-logit))


LOG_3 = math.log(3)
PART_ERROR = (
    cost(2**0.5 - 1)  # 2 cos((3, 3), (1, 0)) - 1, right
    + cost(1 - 6 / 13**0.5)  # 2 cos((2, 3), (0, 1)) - 1, wrong
    + cost(1 - 1.2)  # 2 cos((3, 4), (1, 0)) - 1, wrong
    + cost(1.6 - 1)  # 2 cos((3, 4), (0, 1)) - 1, right
)
"""Images of one segment, text 0 (1, 0) and text 1 (0, 1), a head a coordinate, scale 2, bias -1.

Key (1, 1) and value (4, 6) of image 0, key (0, 0) and value (6, 8) of image 1. Query (ln 3, 0) of
text 0: in its first head the segment of image 0 has 3 parts to 1 of the key of zeros, all else is
half and half. Query (0, 0) of text 1: half and half. So text 0 finds (3, 3) and (3, 4), text 1
finds (2, 3) and (3, 4).
"""


def of_parts() -> dict[str, torch.Tensor]:
    """The same as what a module makes, with a second text that is not there."""
    return {
        "query": torch.tensor([[[LOG_3, 0], [9, 9]], [[0, 0], [9, 9]]]),
        "key": torch.tensor([[[1.0, 1]], [[0, 0]]]),
        "value": torch.tensor([[[4.0, 6]], [[6, 8]]]),
        "parts": torch.tensor([[[1.0, 0], [1, 0]], [[0, 1], [1, 0]]]),
    }


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_the_total_by_hand(weight: float) -> None:
    """Eq. 6 to 8 and the sum: the images at 0 and 90 degrees and both captions at 0, scale 2.5 and bias
    -1.5, so logits (1, 1) and (-1.5, -1.5). Of three texts that an image may meet one is missing.
    """
    f = random_features(2, 0)
    f = replace(
        f,
        valid_further_NS=torch.tensor([[True, False], [True, False]]),
        made=of_parts() | {"coarse": at(0, 90), "long": at(0, 0)},
        numbers=f.numbers
        | {"part_scale": torch.tensor(2.0), "part_bias": torch.tensor(-1.0)}
        | {"out_weight": torch.eye(2), "out_bias": torch.zeros(2)},
    )
    whole = (cost(1) + cost(-1) + cost(1.5) + cost(-1.5)) / 2
    loss, metrics = FCast(lambda_part=weight)(f, SCALE)
    assert metrics["loss_whole"].item() == pytest.approx(whole, rel=1e-6)
    assert loss.item() == pytest.approx(whole + weight * PART_ERROR / 3, rel=1e-6)


class Given(torch.nn.Module):
    """Encoders of known answers: a segment (1, 2, 0) and a whole (0, 3, 4) of the image; chunks are
    given, a caption is the sum of those that it has."""

    @property
    def text(self):
        return self

    def images(self, pixels, superpixels):
        return torch.tensor([[[1.0, 2, 0]]]), torch.tensor([[0.0, 3, 4]])

    def chunks(self, texts):
        return texts

    def parts(self, chunk):
        return 2 * chunk

    def whole(self, chunk, valid):
        return (chunk * valid[..., None]).sum(dim=1)


def test_queries_keys_and_values_by_hand() -> None:
    """Eq. 5 and 6: layer norms in front of projections, embeddings without either.

    The norms keep (1, 0, -1): segment (1, 2, 0) becomes (0, 1, -1), chunks (1, 0, -2) and (0, 0, 3)
    doubled by ``parts`` become (4, 1, -5) / sqrt 21 and (-1, -1, 2) / sqrt 3. A third chunk is not
    of the caption, which is (1, 0, 1); the row before them is the caption uncut.
    """
    module = FCastModule(Given(), 3, num_chunks=2)
    with torch.no_grad():
        for number, (norm, project) in enumerate(
            zip(module.norms, module.projections, strict=True)
        ):
            norm.weight.fill_((2 / 3) ** 0.5)
            project.weight.copy_((number + 1) * torch.eye(3))
            project.bias.zero_()
    batch = SimpleNamespace(
        pixels_V3SS=None, prepared={"superpixels": None}, num_global=1, slot_E=torch.arange(3),
        texts=torch.tensor([[9.0, 9, 9], [1, 0, -2], [0, 0, 3], [5, 5, 5]]),
        valid_further_NS=torch.ones(1, 3, dtype=torch.bool),
    )  # fmt: skip
    found = module(Encoded(features=None, encoder=None, batch=batch)).rows
    close = {"rtol": 1e-4, "atol": 1e-4}  # the norms' own epsilon
    first, second = torch.tensor([4.0, 1, -5]) / 21**0.5, torch.tensor([-1.0, -1, 2]) / 3**0.5
    torch.testing.assert_close(found["query"][0, :2], torch.stack([first, second]), **close)
    torch.testing.assert_close(found["key"], torch.tensor([[[0.0, 2, -2]]]), **close)
    torch.testing.assert_close(found["value"], torch.tensor([[[0.0, 3, -3]]]), **close)
    wanted = torch.tensor([[1 / 5**0.5, 0, -2 / 5**0.5], [0, 0, 1]])
    torch.testing.assert_close(found["parts"][0, :2], wanted)
    torch.testing.assert_close(found["coarse"], torch.tensor([[0, 0.6, 0.8]]))
    torch.testing.assert_close(found["long"], torch.tensor([[0.5**0.5, 0, 0.5**0.5]]))


@torch.no_grad()
def test_chunks_and_captions_by_hand() -> None:
    """Eq. 1 to 3 with layers that change nothing but for the second stage's attention, which takes
    the mean of all.

    The end token is (1, 0, -1) in third place and (0, 1, -1) in second. The adapter adds (1, 0,
    -1), the third position takes it off again: the second stage reads the class token (1, -1, 0),
    (2, 0, -2) and (0, 1, -1), as its norm sees them (1, -1, 0), (1, 0, -1) and (0, 1, -1). Their
    mean on top of the class token: (5, -3, -2) / 3, normed and doubled 2 (5, -3, -2) / sqrt 19.
    """
    text = TwoStageText(plain_model(text_layers=2, projection=3), num_first=1, num_chunks=3)
    embeddings, (layer,) = text.first.embeddings, text.second
    embeddings.token_embedding.weight[2] = torch.tensor([1.0, 0, -1])
    embeddings.position_embedding.weight[1] = torch.tensor([-1.0, 1, 0])
    embeddings.position_embedding.weight[2] = 0
    found = text.chunks(lay_out([[1, 5, 2], [1, 2]], context=77, pad_id=2))
    wanted = torch.tensor([[1.0, 0, -1], [0, 1, -1]])
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(text.parts(found), 2 * wanted)

    text.adapter[3].weight.zero_()
    text.adapter[3].bias.copy_(torch.tensor([1.0, 0, -1]))
    text.class_token.copy_(torch.tensor([1.0, -1, 0]))
    text.positions.zero_()
    text.positions[2] = torch.tensor([-1.0, 0, 1])
    layer.layer_norm1.weight.fill_((2 / 3) ** 0.5)
    attention = layer.self_attn
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        linear.weight.zero_()
        linear.bias.zero_()
    for linear in (attention.v_proj, attention.out_proj):
        linear.weight.copy_(torch.eye(3))
    chunks = torch.cat([found, torch.tensor([[7.0, -9, 2]])])[None]  # the third is not there
    whole = text.whole(chunks, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(whole, 2 * torch.tensor([[5.0, -3, -2]]) / 19**0.5)


@torch.no_grad()
def test_grouping_by_hand() -> None:
    """Tokens whose mean is 0, two of them far out: the centres. The others are as like to either.

    A centre takes e^5 to e^-5 of itself and of the other, and half of each of the rest, two in all:
    (2 s - 1) / 2 of its own place, which is added to it. Without the layers in between.
    """
    grouping = Grouping(2, 1, 2)
    grouping.attention.out_proj.weight.zero_()
    grouping.bias.zero_()
    grouping.widen, grouping.narrow = torch.nn.Identity(), torch.nn.Identity()
    token = torch.tensor([[[1.0, 0], [-1, 0], [0, 0.5], [0, -0.5], [8, 8]]])
    valid = torch.tensor([[True, True, True, True, False]])
    cls, centre, share = grouping(torch.tensor([[[3.0, 4]]]), token, valid)
    s = 1 / (1 + math.exp(-10))
    wanted = torch.tensor([[[s, 1 - s], [1 - s, s], [0.5, 0.5], [0.5, 0.5], [0, 0]]])
    torch.testing.assert_close(share, wanted)
    torch.testing.assert_close(centre, torch.tensor([[[s + 0.5, 0], [-s - 0.5, 0]]]))
    assert cls.tolist() == [[[6.0, 8.0]]]
