"""F-CAST: its losses by hand, its encoders, its chunks, and a run measured in another process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from evaluating import config, run_of
from transformers import CLIPModel

from glit.errors import RecipeError, UserError, WeightsError
from glit.evaluation.run import evaluate
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.text_rows import lay_out
from glit.training.config import TrainConfig
from glit.training.objectives.f_cast.chunks import balanced_chunks, random_chunks
from glit.training.objectives.f_cast.grouping import Grouping, farthest_points
from glit.training.objectives.f_cast.model import FCastEncoder
from glit.training.objectives.f_cast.objective import FCast, part_loss
from glit.training.objectives.f_cast.superpixels import superpixels
from glit.training.objectives.f_cast.vision import means, sine_positions
from glit.training.setup import prepare

SMALL = {"depths": (1, 1, 1, 1), "text_depths": (1, 1), "num_segments": (12, 8, 4, 2)}
SPANS = [(10 * i, 10 * i + 9) for i in range(14)]


def test_parts_against_loops() -> None:
    """Three images of two segments, with two, one and two texts, through torch's own attention."""
    torch.manual_seed(0)
    width, query, key, value = 4, *torch.randn(3, 3, 2, 4).double()
    part = F.normalize(torch.randn(3, 2, 4).double(), dim=-1)
    valid = torch.tensor([[True, True], [True, False], [True, True]])
    pick = torch.tensor([1, 0, 0])
    attention = torch.nn.MultiheadAttention(
        width, math.gcd(8, width), batch_first=True, add_zero_attn=True
    ).double()
    attention.requires_grad_(False)
    with torch.no_grad():  # what is given has been projected
        attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
    out = (attention.out_proj.weight, attention.out_proj.bias)
    scale, bias = torch.tensor(3.0).double(), torch.tensor(-1.0).double()
    found = part_loss(query, key, value, part, valid, pick, out, scale, bias)
    error = 0.0
    for i in range(3):
        own = [(i, k) for k in range(2) if valid[i, k]]
        for j, k in own + [(j, int(pick[j])) for j in range(3) if j != i]:
            pooled, _ = attention(query[j, k][None], key[i], value[i])
            cosine = float(F.cosine_similarity(pooled[0], part[j, k], dim=0))
            logit = 3 * cosine - 1
            error += math.log1p(math.exp(-logit if i == j else logit))
    assert found.item() == pytest.approx(error / (3 + 2 - 1))
    inputs = [each.requires_grad_() for each in (query, key, value)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: part_loss(q, k, v, part, valid, pick, out, scale, bias), inputs
    )


@pytest.mark.parametrize(("number", "sizes"), [(6, [2, 2, 1, 1]), (11, [3, 3, 3, 2]), (3, [1] * 3)])
def test_balanced_chunks_of_the_papers_examples(number: int, sizes: list[int]) -> None:
    found = balanced_chunks(SPANS[:number], 4)
    ends = np.cumsum(sizes).tolist()
    assert found == [(SPANS[e - s][0], SPANS[e - 1][1]) for s, e in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("number", [0, 1, 3, 4, 7, 12, 14])
def test_random_chunks_hold_one_to_three_sentences_in_order(number: int) -> None:
    seen = set()
    for seed in range(20):
        found = random_chunks(SPANS[:number], 4, np.random.default_rng(seed))
        seen.add(tuple(found))
        assert len(found) == (4 if number else 0)
        if number < 4:
            assert found[:number] == SPANS[:number] and set(found) <= set(SPANS[:number])
            continue
        assert found[0][0] == 0 and found[-1][1] == SPANS[min(number, 12) - 1][1]
        assert all(b[0] == a[1] + 1 for a, b in pairwise(found))
        assert {(end - start) // 10 + 1 for start, end in found} <= {1, 2, 3}
    assert (len(seen) > 1) is (number not in (0, 1, 4, 12, 14))


def test_texts_are_the_caption_s_chunks_and_others() -> None:
    caption = "".join(f"Sentence{i}." + " " * (i < 9) for i in range(10)) + "x" * 30
    texts = FCast().texts(caption, SPANS[:10], np.random.default_rng(1))
    assert len(texts) == 8
    assert "".join(texts[:4]).replace(" ", "").startswith("Sentence")
    assert FCast().texts("", [], np.random.default_rng(1)) == []


def test_farthest_points_by_hand() -> None:
    points = torch.tensor([[[0.0], [1.0], [10.0], [4.0], [99.0]]])
    valid = torch.tensor([[True, True, True, True, False]])
    # the mean is 3.75; the farthest from it is 10, then 0, then 1, since 4 is as good as the mean
    assert farthest_points(points, valid, 4).tolist() == [[2, 0, 1, 3]]
    assert farthest_points(points, valid, 6).tolist() == [[2, 0, 1, 3, 0, 0]]


def test_grouping_does_not_see_padding_and_shares_sum_to_one() -> None:
    torch.manual_seed(0)
    grouping, token, cls = Grouping(8, 2, 3), torch.randn(2, 6, 8), torch.randn(2, 1, 8)
    valid = torch.arange(6) < torch.tensor([[6], [4]])
    cls_after, centre, share = grouping(cls, token, valid)
    garbage = torch.where(valid[..., None], token, torch.full_like(token, 50.0))
    found = grouping(cls, garbage, valid)
    torch.testing.assert_close(found[:2], (cls_after, centre))
    alone = grouping(cls[1:], token[1:, :4], valid[1:, :4])
    torch.testing.assert_close(alone[1], centre[1:])
    torch.testing.assert_close(share.sum(dim=2), valid.float())


def test_means_of_superpixels_by_hand() -> None:
    features = torch.tensor([[[1.0], [3.0]], [[5.0], [8.0]]])[None]
    segments = torch.tensor([[[0, 0], [2, 0]]], dtype=torch.uint8)
    token, valid = means(features, segments, 4)
    assert token[0, :, 0].tolist() == [4.0, 0.0, 5.0, 0.0]
    assert valid.tolist() == [[True, False, True, False]]


def test_positions_tell_columns_from_rows() -> None:
    found = sine_positions(3, 8)
    assert found.shape == (3, 3, 8)
    torch.testing.assert_close(found[2, 1, 0], torch.tensor(math.sin(1.0)))
    torch.testing.assert_close(found[2, 1, 4], torch.tensor(math.sin(2.0)))


def test_superpixels_follow_edges() -> None:
    image = np.zeros((32, 32, 3), dtype=np.uint8)
    image[:, 16:] = 255
    found = superpixels(image, 4)
    assert found.shape == (4, 4) and found.dtype == np.uint8
    black, white = set(found[:, :2].flat), set(found[:, 2:].flat)
    assert black and white and not black & white and max(black | white) < 4


@pytest.fixture(scope="module")
def encoder(tiny_clip) -> ClipEncoder:
    model = CLIPModel.from_pretrained(tiny_clip)
    return ClipEncoder(model, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def made(encoder: ClipEncoder, start: str, **changes) -> FCastEncoder:
    torch.manual_seed(3)
    return FCastEncoder(encoder, num_chunks=4, start=start, **{**SMALL, **changes}).eval()


def test_from_clip_takes_what_fits(encoder) -> None:
    """Two layers of each tower are there; a third vision layer stays at random."""
    given = encoder.clip.state_dict()
    for start in ("clip", "scratch"):
        found = made(encoder, start)
        layers = [
            (found.vision.stages[1][0], "vision_model.encoder.layers.1.mlp.fc1.weight"),
            (found.text.second[0], "text_model.encoder.layers.1.mlp.fc1.weight"),
        ]
        for layer, name in layers:
            assert torch.equal(layer.mlp.fc1.weight, given[name]) is (start == "clip")
    words = made(encoder, "clip").text.first.embeddings.token_embedding.weight
    assert torch.equal(words, given["text_model.embeddings.token_embedding.weight"])


@torch.no_grad()
def test_numbers_of_superpixels_and_other_images_do_not_matter(encoder) -> None:
    found = made(encoder, "scratch")
    pixels = torch.randint(0, 255, (2, 3, 32, 32), dtype=torch.uint8)
    segments = torch.randint(0, 9, (2, 4, 4), dtype=torch.uint8)
    part, whole = found.images(pixels, segments)
    assert part.shape == (2, 8, 16) and whole.shape == (2, 16)
    torch.testing.assert_close(found.images(pixels[1:], segments[1:])[1], whole[1:])
    renamed = found.images(pixels, segments + 3)[1]  # the empty numbers are others
    torch.testing.assert_close(renamed, whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_parts_leave_after_the_second_layers_and_the_whole_after_the_last(encoder) -> None:
    """Section 3.1, with the layers' answers caught on their way."""
    vision, caught = made(encoder, "scratch").vision, []
    for layers in vision.stages:
        layers[-1].register_forward_hook(lambda *given: caught.append(given[-1]))
    segments = (torch.arange(16) % 12).to(torch.uint8).view(4, 4).expand(2, -1, -1)
    part, whole = vision(torch.rand(2, 3, 32, 32), segments)
    assert [tokens.shape[1] - 1 for tokens in caught] == [12, 8, 4, 2]
    wanted = vision.part_projection(vision.part_norm(caught[1][:, 1:]))
    torch.testing.assert_close(part, wanted)
    wanted = vision.whole_projection(vision.whole_norm(caught[3][:, 0]))
    torch.testing.assert_close(whole, wanted)


@torch.no_grad()
def test_chunks_are_read_alone_and_missing_ones_are_not_there(encoder) -> None:
    text = made(encoder, "scratch").text
    ids = [[1, 5, 6, 2], [1, 7, 2], [1, 8, 9, 10, 2]]
    together = text.chunks(lay_out(ids, context=77, pad_id=2))
    for number, one in enumerate(ids):
        alone = text.chunks(lay_out([one], context=77, pad_id=2))
        torch.testing.assert_close(alone[0], together[number], rtol=1e-4, atol=1e-5)
    chunks = torch.stack([together[[0, 1, 2, 0]], together[[1, 2, 0, 0]]])
    valid = torch.tensor([[True] * 4, [True, True, False, False]])
    whole = text.whole(chunks, valid)
    torch.testing.assert_close(text.whole(chunks[1:, :2], valid[1:, :2]), whole[1:])
    other = text.whole(torch.where(valid[..., None], chunks, 7 * chunks), valid)
    torch.testing.assert_close(other, whole)
    swapped = text.whole(chunks[:, [1, 0, 2, 3]], valid)
    assert not torch.allclose(swapped, whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": (3, 3, 3)}, r"train.depths = \[3, 3, 3\]: wanted 4 numbers"),
        ({"num_segments": (16, 32, 8, 4)}, "wanted no more after a grouping than before"),
        ({"num_segments": (400, 32, 8, 4)}, "num_segments: found .* want 1 to 255"),
        ({"num_chunks": 9}, "num_chunks = 9, num_parts = 8: wanted as many parts"),
        ({"encoders_start": "open"}, "found 'open'; known: scratch, clip"),
        ({"lambda_part": -1.0}, "lambda_part: found -1.0"),
    ],
)
def test_values_that_cannot_be(changes, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        FCast(**changes)


@pytest.mark.slow
def test_a_run_is_measured_by_its_own_encoders_in_another_process(
    tiny_clip, make_dataset, tmp_path
) -> None:
    dataset, run = make_dataset(6), tmp_path / "run"
    options = FCast(**SMALL)
    run_of("f-cast", tiny_clip, dataset, run, context=77, options=options, lr=1e-3)
    settings = config(context=77)
    (here,) = evaluate("retrieval", [str(run)], str(dataset), settings)
    (sentences,) = evaluate(
        "caption-quality", [str(run)], str(dataset), config(context=77, device="cpu")
    )
    (start,) = evaluate("caption-quality", [str(tiny_clip)], str(dataset), settings)
    assert sentences.metrics["mean_cosine"] != pytest.approx(start.metrics["mean_cosine"])
    command = [sys.executable, "-m", "glit", "eval", "caption-quality", str(run), str(dataset)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "out"), "--set", "evaluate.context=77"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    there = json.loads((tmp_path / "out" / "caption-quality_run.json").read_text())["metrics"]
    assert there["mean_cosine"] == pytest.approx(sentences.metrics["mean_cosine"], abs=1e-6)
    assert set(here.metrics) >= {"image_retrieval_recall@1", "text_retrieval_recall@1"}
    with pytest.raises(UserError, match="has encoders of its own, and no patches of images"):
        evaluate("localize", [str(run)], str(dataset), settings)
    with pytest.raises(WeightsError, match="a run of 'f-cast', whose encoders are its own"):
        prepare(TrainConfig(model=str(run), batch_size=4), str(dataset))
